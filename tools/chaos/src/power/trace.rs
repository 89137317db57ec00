//! Reads what the tracing library wrote; the format is told in `shim/trace.c`.

use anyhow::{Context as _, bail};

/// Number that the library gave to a file, within one process.
pub(super) type Number = u32;

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Op {
    Process,
    Open {
        file: Number,
        path: String,
        cut: bool,
    },
    OpenDirectory {
        file: Number,
        path: String,
    },
    MakeDirectory(String),
    Write {
        file: Number,
        offset: u64,
        bytes: Vec<u8>,
    },
    Length {
        file: Number,
        length: u64,
    },
    Rename {
        from: String,
        to: String,
    },
    Remove(String),
    SyncBegun(Number),
    SyncDone(Number),
    /// `sync_file_range`, which promises nothing.
    Hint,
}

/// Reads a whole trace.
///
/// # Errors
/// If it ends in the middle of a record, which only a killed process leaves and only at the end of its own part, or has
/// one that nobody writes.
pub(super) fn read(mut bytes: &[u8]) -> anyhow::Result<Vec<Op>> {
    let mut ops = Vec::new();
    while !bytes.is_empty() {
        let (head, rest) = bytes.split_first_chunk::<17>().context("the trace is cut off")?;
        let number = |at: usize| head[at..].first_chunk().copied().map_or(0, u32::from_ne_bytes);
        let offset = head[5..].first_chunk().copied().map_or(0, u64::from_ne_bytes);
        let (contents, rest) = rest.split_at_checked(usize::try_from(number(13))?).context("the trace is cut off")?;
        ops.push(op(head[0], number(1), offset, contents)?);
        bytes = rest;
    }
    Ok(ops)
}

fn op(kind: u8, file: Number, offset: u64, contents: &[u8]) -> anyhow::Result<Op> {
    let path = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).context("a path isn't text");
    Ok(match kind {
        b'P' => Op::Process,
        b'C' => Op::Open { file, path: path(contents)?, cut: offset == 1 },
        b'S' => Op::OpenDirectory { file, path: path(contents)? },
        b'M' => Op::MakeDirectory(path(contents)?),
        b'W' => Op::Write { file, offset, bytes: contents.to_vec() },
        b'T' => Op::Length { file, length: offset },
        b'U' => Op::Remove(path(contents)?),
        b'B' => Op::SyncBegun(file),
        b'E' => Op::SyncDone(file),
        b'F' => Op::Hint,
        b'R' => {
            let end = contents.iter().position(|byte| *byte == 0).context("a renaming without a new name")?;
            Op::Rename { from: path(&contents[..end])?, to: path(&contents[end + 1..])? }
        }
        other => bail!("the trace has an unknown operation {other}"),
    })
}
