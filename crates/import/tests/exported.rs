//! Hostile and damaged exports: an error of one line, in no time and no memory.
#![allow(clippy::unwrap_used)]

use preflop_import::exported::{Bindings, read_onnx, read_pt2};
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::path::Path;

fn seed(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/onnx_file").join(name))
        .unwrap()
}

fn onnx(bytes: &[u8], sizes: &Bindings) -> Result<usize, String> {
    read_onnx(Cursor::new(bytes), "t.onnx", "t", sizes).map(|p| p.calls.len()).map_err(|e| e.to_string())
}

fn batch(size: u64) -> Bindings {
    Bindings { batch: Some(size), ..Bindings::default() }
}

/// A field of bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 128 {
        out.push(length as u8 | 128);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
    out
}

#[test]
fn a_small_network_reads_and_its_open_dimension_is_asked_for() {
    let small = seed("small.onnx");
    assert_eq!(onnx(&small, &batch(2)), Ok(5));
    let said = onnx(&small, &Bindings::default()).unwrap_err();
    assert!(said.contains("`batch` is open"), "{said}");
}

#[test]
fn lengths_that_lie_are_told() {
    for (name, word) in [
        ("endless", "a number has more than 64 bits"),
        ("allocation", "does not fit into"),
        ("overflow", "does not fit into"),
    ] {
        let said = onnx(&seed(name), &Bindings::default()).unwrap_err();
        assert!(said.contains(word) && said.contains("not an ONNX model") && !said.contains('\n'), "{said}");
    }
}

#[test]
fn graphs_inside_graphs_are_stepped_over() {
    // model.graph.node.attribute.graph.node.attribute.graph ..
    let mut inner = Vec::new();
    for _ in 0..3000 {
        inner = field(6, &field(1, &field(5, &inner)));
    }
    let said = onnx(&field(7, &field(1, &field(5, &inner))), &Bindings::default());
    assert!(said.is_ok() || !said.unwrap_err().contains('\n'));
}

#[test]
fn many_empty_nodes_stop_at_a_bound() {
    let nodes = field(1, &[]).repeat(2_000_000);
    let said = onnx(&field(7, &nodes), &Bindings::default()).unwrap_err();
    assert!(said.contains("its graph takes more than 128 MiB"), "{said}");
}

/// A file that counts what is read of it.
struct Counted<'a> {
    parts: [&'a [u8]; 2],
    hole: u64,
    at: u64,
    read: &'a std::cell::Cell<u64>,
}

impl Counted<'_> {
    fn length(&self) -> u64 {
        self.parts[0].len() as u64 + self.hole + self.parts[1].len() as u64
    }
}

impl Read for Counted<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let (first, hole) = (self.parts[0].len() as u64, self.hole);
        let n = out.len().min((self.length() - self.at) as usize);
        for b in &mut out[..n] {
            *b = match self.at {
                at if at < first => self.parts[0][at as usize],
                at if at < first + hole => 0,
                at => self.parts[1][(at - first - hole) as usize],
            };
            self.at += 1;
        }
        self.read.set(self.read.get() + n as u64);
        Ok(n)
    }
}

impl Seek for Counted<'_> {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.at = match to {
            SeekFrom::Start(n) => n,
            SeekFrom::End(n) => self.length().saturating_add_signed(n),
            SeekFrom::Current(n) => self.at.saturating_add_signed(n),
        };
        Ok(self.at)
    }
}

#[test]
fn weights_are_stepped_over() {
    // The weights of a gigabyte: raw_data (9) of a tensor (5) of the graph (7) after the nodes of the small network.
    const WEIGHTS: u64 = 1 << 30;
    let small = seed("small.onnx");
    let varint = |mut n: u64| {
        let mut out = Vec::new();
        while n >= 128 {
            out.push(n as u8 | 128);
            n >>= 7;
        }
        out.push(n as u8);
        out
    };
    let raw = [vec![9 << 3 | 2], varint(WEIGHTS)].concat();
    let tensor = [vec![5 << 3 | 2], varint(raw.len() as u64 + WEIGHTS), raw].concat();
    // A model may have its graph twice; the last one counts.
    let first = [vec![7 << 3 | 2], varint(tensor.len() as u64 + WEIGHTS), tensor].concat();
    let read = std::cell::Cell::new(0);
    let file = Counted { parts: [&first, &small], hole: WEIGHTS, at: 0, read: &read };
    assert_eq!(read_onnx(file, "t.onnx", "t", &batch(2)).unwrap().calls.len(), 5);
    assert!(read.get() < 1 << 20, "{} bytes read", read.get());
}

#[test]
fn operators_that_cannot_be_are_refused() {
    let small = seed("small.onnx");
    let find = |text: &[u8]| small.windows(text.len()).position(|w| w == text).unwrap();
    let changed = |at: usize, byte: u8| {
        let mut bytes = small.clone();
        bytes[at] = byte;
        onnx(&bytes, &batch(2)).unwrap_err()
    };
    // `strides` is followed by its list: a tag, a length, the numbers.
    let said = changed(find(b"strides") + 9, 0);
    assert!(said.contains("`Conv` node `/conv1/Conv`: `strides` has 0"), "{said}");
    let said = changed(find(b"group") + 6, 2);
    assert!(said.contains("2 groups do not divide its channels"), "{said}");
    let said = changed(find(b"kernel_shape") + 14, 99);
    assert!(said.contains("its window reaches over 99 of 18 elements"), "{said}");
}

#[test]
fn a_damaged_archive_is_told() {
    let text =
        std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/pt2_file/small.json"))
            .unwrap();
    let mut archive = Vec::new();
    let mut zip = rawzip::ZipArchiveWriter::new(&mut archive);
    let (mut entry, config) = zip.new_file("m/models/model.json").start().unwrap();
    let mut writer = config.wrap(&mut entry);
    std::io::Write::write_all(&mut writer, &text).unwrap();
    let (_, descriptor) = writer.finish().unwrap();
    entry.finish(descriptor).unwrap();
    zip.finish().unwrap();
    let read = |bytes: &[u8]| {
        read_pt2(Cursor::new(bytes), "t.pt2", "t", &Bindings::default())
            .map(|p| p.calls.len())
            .map_err(|e| e.to_string())
    };
    assert_eq!(read(&archive), Ok(2));
    let at = archive.windows(4).position(|w| w == b"relu").unwrap();
    archive[at] = b'R';
    let said = read(&archive).unwrap_err();
    assert!(said.contains("its model.json is damaged"), "{said}");
}
