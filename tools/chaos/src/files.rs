//! Directories as maps from names to contents.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

/// The files below a directory, by their path in it.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// The names and contents of the files below a directory.
///
/// # Errors
/// If one can't be read.
pub(crate) fn contents_of(directory: &Path) -> io::Result<Files> {
    let mut found = Files::new();
    let mut directories = vec![String::new()];
    while let Some(below) = directories.pop() {
        for entry in fs::read_dir(directory.join(&below))? {
            let entry = entry?;
            let name = format!("{below}{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                directories.push(format!("{name}/"));
            } else {
                found.insert(name, fs::read(entry.path())?);
            }
        }
    }
    Ok(found)
}

/// Writes them below `directory`.
///
/// # Errors
/// If one can't be written.
pub(crate) fn write_all(directory: &Path, files: &Files) -> io::Result<()> {
    for (name, contents) in files {
        let path = directory.join(name);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, contents)?;
    }
    Ok(())
}
