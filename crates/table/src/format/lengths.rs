//! Lengths that an Arrow file claims, checked against the file before anything is taken for them.
//!
//! A reader takes memory for a block as long as its header says, and a damaged header may say 64 GiB. Headers are read, bodies
//! are passed over.

use arrow_ipc::{root_as_footer, root_as_message};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};

/// What stands before and after the footer of a file.
const MAGIC: usize = 6;
/// Marks a message whose length is a 32-bit number.
const CONTINUES: u32 = u32::MAX;

const CUT: &str = "the file is damaged or cut: a block of it ends after its end";

fn u32_at(file: &mut File, at: u64) -> Result<u32, String> {
    let mut bytes = [0; 4];
    file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut bytes)).map_err(|_| CUT)?;
    Ok(u32::from_le_bytes(bytes))
}

fn bytes_at(file: &mut File, at: u64, long: u64, end: u64) -> Result<Vec<u8>, String> {
    if at.checked_add(long).is_none_or(|last| last > end) {
        return Err(CUT.to_string());
    }
    let mut bytes = vec![0; long as usize];
    file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut bytes)).map_err(|_| CUT)?;
    Ok(bytes)
}

/// Do all blocks of an Arrow file (Feather) lie inside it?
pub(super) fn of_file(file: &mut File) -> Result<(), String> {
    let end = file.metadata().map_err(|e| e.to_string())?.len();
    let tail = (4 + MAGIC) as u64;
    let footer_end = end.checked_sub(tail).ok_or(CUT)?;
    let long = u64::from(u32_at(file, footer_end)?);
    let from = footer_end.checked_sub(long).ok_or(CUT)?;
    let bytes = bytes_at(file, from, long, footer_end)?;
    let footer = root_as_footer(&bytes).map_err(|_| "the file is damaged: its footer cannot be read")?;
    let blocks =
        footer.dictionaries().into_iter().flatten().chain(footer.recordBatches().into_iter().flatten());
    for block in blocks {
        let parts = [block.offset(), i64::from(block.metaDataLength()), block.bodyLength()];
        let last = parts.iter().try_fold(0_u64, |sum, &part| sum.checked_add(u64::try_from(part).ok()?));
        if last.is_none_or(|last| last > end) {
            return Err(CUT.to_string());
        }
    }
    Ok(())
}

/// Do all messages of a stream lie inside it?
pub(super) fn of_stream(file: &mut File) -> Result<(), String> {
    let end = file.metadata().map_err(|e| e.to_string())?.len();
    let mut at = 0;
    while at < end {
        let mut long = u32_at(file, at)?;
        at += 4;
        if long == CONTINUES {
            long = u32_at(file, at)?;
            at += 4;
        }
        if long == 0 {
            return Ok(());
        }
        let header = bytes_at(file, at, u64::from(long), end)?;
        let message =
            root_as_message(&header).map_err(|_| "the file is damaged: a message of it cannot be read")?;
        let body = u64::try_from(message.bodyLength()).map_err(|_| CUT)?;
        at = (at + u64::from(long)).checked_add(body).filter(|&next| next <= end).ok_or(CUT)?;
    }
    Ok(())
}
