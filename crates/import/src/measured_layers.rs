//! Tables of measured convolution layers (CSV), as `preflop delta --measured` reads them.
//!
//! The columns of `preflop delta`'s layers and, beside them, what was measured. Tables of other projects name the same
//! things otherwise, so each column has its other names here.

use crate::layer_table::{Listed, whole};
use preflop_core::Dtype;
use preflop_core::delta::networks::NamedLayer;
use preflop_core::delta::{Layer, Tile};

/// What a user who got the columns wrong is told.
pub const COLUMNS: &str = "columns: name,b,ci,h,w,co,r,s,stride,pad and at least one of time_ms, time_us, l1_bytes, \
     l2_bytes, dram_bytes; network, gpu, dtype, kernel and algorithm are optional";

/// A column and its other names, in lower case.
const NAMES: &[(&str, &[&str])] = &[
    ("b", &["n", "batch"]),
    ("ci", &["c", "cin"]),
    ("h", &["hw"]),
    ("w", &["hw"]),
    ("co", &["k", "cout"]),
    ("r", &["ksize"]),
    ("s", &["ksize"]),
    ("time_ms", &["latency_ms"]),
    ("l1_bytes", &["l1_load_bytes"]),
    ("l2_bytes", &["l2_to_sm_bytes"]),
    ("dram_bytes", &["dram_read_bytes"]),
    ("gpu", &["device"]),
    ("algorithm", &["fwd_algo"]),
];

/// A layer with what was measured of it.
#[derive(Debug, Clone)]
pub struct Measured {
    /// The layer, with the tile that its kernel's name tells.
    pub listed: Listed,
    /// The network it belongs to: the column, or what stands before the first dash of the name.
    pub network: String,
    /// GPU, where the table says.
    pub gpu: Option<String>,
    /// Format, where the table says.
    pub dtype: Option<String>,
    /// Convolution algorithm, where the table says.
    pub algorithm: Option<String>,
    /// Kernel, where the table says.
    pub kernel: Option<String>,
    /// Milliseconds.
    pub time_ms: Option<f64>,
    /// Bytes loaded at L1, L2 and DRAM.
    pub bytes: [Option<f64>; 3],
}

/// The rows of a table that are forward passes. An error begins with the place in the file: `, line 3: ..`.
pub fn read(bytes: &[u8]) -> Result<Vec<Measured>, String> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).flexible(true).from_reader(bytes);
    let headers: Vec<String> = reader
        .headers()
        .map_err(|e| format!(": not a CSV file: {e}"))?
        .iter()
        .map(|h| h.trim_start_matches('\u{feff}').to_lowercase())
        .collect();
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|e| format!(": not a CSV file: {e}"))?;
        let line = record.position().map_or(0, csv::Position::line);
        let cell = |column: &str| {
            let others = NAMES.iter().find(|(name, _)| *name == column).map_or(&[][..], |(_, others)| others);
            let names = std::iter::once(&column).chain(others);
            let mut found = names.filter_map(|name| headers.iter().position(|h| h == name));
            record.get(found.next()?).filter(|text| !text.is_empty())
        };
        if cell("phase").is_some_and(|phase| phase != "fwd") {
            continue;
        }
        rows.push(row(&cell, line).map_err(|problem| format!(", line {line}: {problem}"))?);
    }
    if rows.is_empty() {
        return Err(": there is no measured layer in it".to_string());
    }
    Ok(rows)
}

fn row<'a>(cell: &impl Fn(&str) -> Option<&'a str>, line: u64) -> Result<Measured, String> {
    let count = |column: &str| whole(column, cell(column).ok_or_else(|| format!("there is no `{column}`"))?);
    let pair = |column: &str, default: u64| -> Result<[u64; 2], String> {
        if let (Some(h), Some(w)) = (cell(&format!("{column}_h")), cell(&format!("{column}_w"))) {
            return Ok([whole(column, h)?, whole(column, w)?]);
        }
        cell(column).map_or(Ok([default; 2]), |text| crate::layer_table::sides(column, text))
    };
    let layer = Layer {
        batch: count("b")?,
        ci: count("ci")?,
        h: count("h")?,
        w: count("w")?,
        co: count("co")?,
        r: count("r")?,
        s: count("s")?,
        stride: pair("stride", 1)?,
        pad: pair("pad", 0)?,
        dilation: pair("dilation", 1)?,
        groups: cell("groups").map_or(Ok(1), |t| whole("groups", t))?,
        element_bytes: Dtype::Fp32.size(),
    };
    let name = cell("name").map_or_else(|| format!("line {line}"), str::to_string);
    layer.check().map_err(|e| e.in_layer(&name).to_string())?;
    let number = |column: &str| -> Result<Option<f64>, String> {
        let Some(text) = cell(column) else { return Ok(None) };
        match text.parse::<f64>() {
            // A counter of zero was not counted: bulk copies do not pass the L1's counters.
            Ok(0.0) => Ok(None),
            Ok(x) if x > 0.0 && x.is_finite() => Ok(Some(x)),
            _ => Err(format!("`{column}` is `{text}`, not a number above 0")),
        }
    };
    let time_ms = match number("time_ms")? {
        Some(ms) => Some(ms),
        None => number("time_us")?.map(|us| us / 1e3),
    };
    let bytes = [number("l1_bytes")?, number("l2_bytes")?, number("dram_bytes")?];
    if time_ms.is_none() && bytes.iter().all(Option::is_none) {
        return Err(format!("nothing was measured of layer `{name}`"));
    }
    let text = |column: &str| cell(column).map(str::to_string);
    let kernel = text("kernel");
    let network = text("network").unwrap_or_else(|| match name.split_once('-') {
        Some((network, _)) => network.to_string(),
        None => "all".to_string(),
    });
    let tile = kernel.as_deref().and_then(tile_of);
    Ok(Measured {
        listed: Listed { named: NamedLayer { name, layer }, tile },
        network,
        gpu: text("gpu"),
        dtype: text("dtype"),
        algorithm: text("algorithm"),
        kernel,
        time_ms,
        bytes,
    })
}

/// The CTA tile in a kernel's name, such as `volta_scudnn_128x64_relu_nn_v1` or `.._tilesize256x64x8_stage3_..`; none for
/// Winograd kernels and for tiles that DeLTA has no figures of.
pub fn tile_of(kernel: &str) -> Option<Tile> {
    if kernel.contains("winograd") {
        return None;
    }
    let after = |mark: &str| kernel.split_once(mark).map(|(_, rest)| rest);
    let size = after("tilesize").or_else(|| after("scudnn_"))?;
    let mut sides = size.split(['x', '_']).map_while(|part| part.parse::<u32>().ok());
    let tile = Tile::of_size(sides.next()?, sides.next()?).ok()?;
    Some(sides.next().map_or(tile, |depth| Tile { blk_k: f64::from(depth), ..tile }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_other_projects_are_read_by_their_own_names() {
        let deepbench = "gpu,dtype,phase,N,C,H,W,K,R,S,pad_h,pad_w,stride_h,stride_w,fwd_algo,time_ms\n\
             titan-xp,fp32,fwd,4,1,161,700,32,5,20,0,1,2,3,IMPLICIT_PRECOMP_GEMM,0.131\n\
             titan-xp,fp32,bwd_data,4,1,161,700,32,5,20,0,0,2,2,IMPLICIT_GEMM,0.5\n";
        let rows = read(deepbench.as_bytes()).unwrap();
        assert_eq!(rows.len(), 1, "gradients are no forward passes");
        let layer = rows[0].listed.named.layer;
        assert_eq!((layer.w, layer.s, layer.stride, layer.pad), (700, 20, [2, 3], [0, 1]));
        assert_eq!(rows[0].time_ms, Some(0.131));
        assert_eq!(rows[0].algorithm.as_deref(), Some("IMPLICIT_PRECOMP_GEMM"));
        let neusight = "device,batch,cin,hw,cout,ksize,stride,pad,kernel,latency_ms\n\
             V100,8,64,56,128,3,1,1,volta_scudnn_128x64_relu_small_nn_v1,2.5\n";
        let row = &read(neusight.as_bytes()).unwrap()[0];
        assert_eq!(row.listed.tile.map(|t| (t.blk_m, t.blk_n)), Some((128.0, 64.0)));
    }

    #[test]
    fn counters_and_kernels_of_today() {
        let tile = tile_of("sm80_xmma_fprop_f32_tilesize256x64x8_stage3_warpsize2x2x1_g1_ffma").unwrap();
        assert_eq!((tile.blk_m, tile.blk_n, tile.blk_k), (256.0, 64.0, 8.0));
        assert_eq!(tile_of("volta_scudnn_winograd_128x128_ldg1"), None);
        assert_eq!(tile_of("implicit_convolve_sgemm"), None);
        let table = "name,b,ci,h,w,co,r,s,stride,pad,time_us,l1_load_bytes,l2_to_sm_bytes,dram_read_bytes\n\
             AlexNet-conv2,256,96,27,27,256,5,5,1,2,5382.53,0,2e9,7e7\n";
        let row = &read(table.as_bytes()).unwrap()[0];
        assert_eq!(row.network, "AlexNet");
        assert_eq!(row.bytes, [None, Some(2e9), Some(7e7)]);
        assert!((row.time_ms.unwrap() - 5.38253).abs() < 1e-12);
    }

    #[test]
    fn a_bad_table_is_told_where() {
        let head = "name,b,ci,h,w,co,r,s,stride,pad,time_ms\n";
        let error = |text: &str| read(text.as_bytes()).unwrap_err();
        assert!(error(head).contains("no measured layer"));
        let bad = error(&format!("{head}x,1,1,1,1,1,1,1,1,0,-3\n"));
        assert!(bad.contains("line 2") && bad.contains("`time_ms` is `-3`"), "{bad}");
        assert!(error(&format!("{head}x,1,1,1,1,1,1,1,1,0,\n")).contains("nothing was measured"));
        assert!(error("name,b\nx,1\n").contains("there is no `ci`"));
    }
}
