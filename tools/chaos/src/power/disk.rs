//! What a disk holds after a power cut, as harshly as POSIX allows.
//!
//! - What was written to a file before a sync of it began that was done before the cut is there.
//! - Of everything written later each sector of 512 bytes is there or not, in any order; a file's length follows the
//!   sectors that are, with zeros in the holes. A change of length is there or not.
//! - Creations, renames and removals come in their order, as from a journal: all up to the last one that a sync of its
//!   directory covered, and of those after it any number of the first ones. Syncing a file doesn't save its name.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs;
use std::io;
use std::path::Path;

use super::trace::{Number, Op};

const SECTOR: usize = 512;

/// A file, whatever its name.
type Id = usize;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    File(Id),
    Directory,
}

type Names = BTreeMap<String, Node>;

/// A change of the names.
#[derive(Debug, Clone)]
enum Naming {
    Add(String, Node),
    Rename(String, String),
    Remove(String),
}

impl Naming {
    fn apply(&self, names: &mut Names) {
        match self {
            Self::Add(name, node) => drop(names.insert(name.clone(), node.clone())),
            Self::Remove(name) => drop(names.remove(name)),
            Self::Rename(from, to) => {
                if let Some(node) = names.remove(from) {
                    names.insert(to.clone(), node);
                }
            }
        }
    }

    fn directory(&self) -> &str {
        let (Self::Add(name, _) | Self::Rename(_, name) | Self::Remove(name)) = self;
        name.rsplit_once('/').map_or("", |(directory, _)| directory)
    }
}

/// A change of a file's contents.
#[derive(Debug, Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl Change {
    fn apply(&self, contents: &mut Vec<u8>) {
        match self {
            Self::Write(offset, bytes) => write(contents, *offset, bytes),
            Self::Length(length) => contents.resize(*length, 0),
        }
    }

    /// Applies what of it got to the disk, each sector by itself.
    fn apply_torn(&self, contents: &mut Vec<u8>, mut survives: impl FnMut() -> bool) {
        let Self::Write(offset, bytes) = self else {
            if survives() {
                self.apply(contents);
            }
            return;
        };
        let mut at = 0;
        while at < bytes.len() {
            let end = bytes.len().min(at + SECTOR - (offset + at) % SECTOR);
            if survives() {
                write(contents, offset + at, &bytes[at..end]);
            }
            at = end;
        }
    }
}

fn write(contents: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if contents.len() < offset + bytes.len() {
        contents.resize(offset + bytes.len(), 0);
    }
    contents[offset..offset + bytes.len()].copy_from_slice(bytes);
}

#[derive(Debug, Default)]
struct File {
    safe: Vec<u8>,
    /// What came since, with the time of each.
    pending: VecDeque<(u64, Change)>,
    /// When the syncs under way began.
    syncs: VecDeque<u64>,
    /// The name it was created with.
    name: String,
}

/// A disk and what is on its way there.
#[derive(Debug)]
pub(super) struct Disk {
    files: Vec<File>,
    /// By number, in the present process.
    open: HashMap<Number, Id>,
    open_directories: HashMap<Number, (String, VecDeque<u64>)>,
    names: Names,
    safe_names: Names,
    pending_names: VecDeque<(u64, Naming)>,
    time: u64,
    /// How the names of the files begin whose syncs don't count.
    unsynced: &'static [&'static str],
}

impl Disk {
    /// An empty one. Syncs of files whose names begin as one of `unsynced` don't count.
    pub(super) fn new(unsynced: &'static [&'static str]) -> Self {
        Self {
            files: Vec::new(),
            open: HashMap::new(),
            open_directories: HashMap::new(),
            names: Names::new(),
            safe_names: Names::new(),
            pending_names: VecDeque::new(),
            time: 0,
            unsynced,
        }
    }

    /// Carries one operation out.
    ///
    /// # Errors
    /// If it is about a file that nobody opened.
    pub(super) fn apply(&mut self, op: &Op) -> anyhow::Result<()> {
        self.time += 1;
        match op {
            Op::Process => {
                self.open.clear();
                self.open_directories.clear();
                self.files.iter_mut().for_each(|file| file.syncs.clear());
            }
            Op::Open { file, path, cut } => self.open(*file, path, *cut),
            Op::OpenDirectory { file, path } => {
                self.open_directories.insert(*file, (path.clone(), VecDeque::new()));
            }
            Op::MakeDirectory(path) => self.name(Naming::Add(path.clone(), Node::Directory)),
            Op::Rename { from, to } => self.name(Naming::Rename(from.clone(), to.clone())),
            Op::Remove(path) => self.name(Naming::Remove(path.clone())),
            Op::Write { file, offset, bytes } => {
                self.change(*file, Change::Write(usize::try_from(*offset)?, bytes.clone()))?;
            }
            Op::Length { file, length } => self.change(*file, Change::Length(usize::try_from(*length)?))?,
            Op::SyncBegun(file) => self.sync_begins(*file)?,
            Op::SyncDone(file) => self.sync_is_done(*file)?,
            Op::Hint => {}
        }
        Ok(())
    }

    fn open(&mut self, number: Number, path: &str, cut: bool) {
        let known = match self.names.get(path) {
            Some(Node::File(id)) => Some(*id),
            _ => None,
        };
        let id = known.unwrap_or_else(|| {
            self.files.push(File { name: path.to_owned(), ..File::default() });
            let id = self.files.len() - 1;
            self.name(Naming::Add(path.to_owned(), Node::File(id)));
            id
        });
        self.open.insert(number, id);
        if cut {
            self.files[id].pending.push_back((self.time, Change::Length(0)));
        }
    }

    fn name(&mut self, naming: Naming) {
        naming.apply(&mut self.names);
        self.pending_names.push_back((self.time, naming));
    }

    fn file(&mut self, number: Number) -> anyhow::Result<&mut File> {
        let id = self.open.get(&number).ok_or_else(|| anyhow::anyhow!("file {number} of the trace isn't open"))?;
        Ok(&mut self.files[*id])
    }

    fn change(&mut self, number: Number, change: Change) -> anyhow::Result<()> {
        let time = self.time;
        self.file(number)?.pending.push_back((time, change));
        Ok(())
    }

    fn sync_begins(&mut self, number: Number) -> anyhow::Result<()> {
        let time = self.time;
        match self.open_directories.get_mut(&number) {
            Some((_, syncs)) => syncs.push_back(time),
            None => self.file(number)?.syncs.push_back(time),
        }
        Ok(())
    }

    /// Of several syncs of one file the first to begin is taken for the one that is done: it covers least.
    fn sync_is_done(&mut self, number: Number) -> anyhow::Result<()> {
        if let Some((directory, syncs)) = self.open_directories.get_mut(&number) {
            let begun = syncs.pop_front().unwrap_or(0);
            let is_covered = |(time, naming): &(u64, Naming)| *time < begun && naming.directory() == directory;
            let covered = self.pending_names.iter().rposition(is_covered).map_or(0, |last| last + 1);
            for (_, naming) in self.pending_names.drain(..covered) {
                naming.apply(&mut self.safe_names);
            }
            return Ok(());
        }
        let unsynced = self.unsynced;
        let file = self.file(number)?;
        let begun = file.syncs.pop_front().unwrap_or(0);
        if unsynced.iter().any(|start| file.name.starts_with(start)) {
            return Ok(());
        }
        let covered = file.pending.iter().take_while(|(time, _)| *time < begun).count();
        for (_, change) in file.pending.drain(..covered) {
            change.apply(&mut file.safe);
        }
        Ok(())
    }

    /// The names and contents of all files, as they would be without any cut.
    pub(super) fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let files = self.names.iter().filter_map(|(name, node)| match node {
            Node::File(id) => Some((name.clone(), self.files[*id].whole())),
            Node::Directory => None,
        });
        files.collect()
    }

    /// Makes `directory` what is left after a power cut now. The files `outside` are of the world: nothing of them is
    /// lost.
    ///
    /// # Errors
    /// If it can't be written.
    pub(super) fn cut(&self, directory: &Path, outside: &[&str], random: &mut fastrand::Rng) -> io::Result<()> {
        let mut names = self.safe_names.clone();
        let pending = self.pending_names.len();
        let more = match random.u8(..4) {
            0 => 0,
            1 => pending,
            _ => random.usize(..=pending),
        };
        self.pending_names.iter().take(more).for_each(|(_, naming)| naming.apply(&mut names));
        for (name, node) in &names {
            match node {
                Node::Directory => fs::create_dir_all(directory.join(name))?,
                Node::File(_) if outside.contains(&name.as_str()) => {}
                Node::File(id) => save(directory, name, &self.files[*id].after_cut(random))?,
            }
        }
        for name in outside {
            if let Some(Node::File(id)) = self.names.get(*name) {
                save(directory, name, &self.files[*id].whole())?;
            }
        }
        Ok(())
    }
}

/// A file whose directory wasn't safe yet has no name.
fn save(directory: &Path, name: &str, contents: &[u8]) -> io::Result<()> {
    let path = directory.join(name);
    if path.parent().is_some_and(Path::exists) { fs::write(path, contents) } else { Ok(()) }
}

impl File {
    fn whole(&self) -> Vec<u8> {
        let mut contents = self.safe.clone();
        self.pending.iter().for_each(|(_, change)| change.apply(&mut contents));
        contents
    }

    fn after_cut(&self, random: &mut fastrand::Rng) -> Vec<u8> {
        let share = match random.u8(..4) {
            0 => 0.0,
            1 => 1.0,
            _ => random.f64(),
        };
        let mut contents = self.safe.clone();
        self.pending.iter().for_each(|(_, change)| change.apply_torn(&mut contents, || random.f64() < share));
        contents
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(byte: u8, offset: u64, length: usize) -> Op {
        Op::Write { file: 1, offset, bytes: vec![byte; length] }
    }

    fn open(file: Number, path: &str) -> Op {
        Op::Open { file, path: path.to_owned(), cut: false }
    }

    /// What `name` holds after each of many cuts.
    fn cuts(disk: &Disk, name: &str) -> Vec<Option<Vec<u8>>> {
        let mut random = fastrand::Rng::with_seed(7);
        let look = |_| {
            let directory = tempfile::tempdir().unwrap();
            disk.cut(directory.path(), &[], &mut random).unwrap();
            fs::read(directory.path().join(name)).ok()
        };
        (0..100).map(look).collect()
    }

    fn disk(unsynced: &'static [&'static str], ops: impl IntoIterator<Item = Op>) -> Disk {
        let mut disk = Disk::new(unsynced);
        ops.into_iter().for_each(|op| disk.apply(&op).unwrap());
        disk
    }

    #[test]
    fn what_a_sync_covered_stays_and_the_rest_is_torn_at_sectors() {
        let root = Op::OpenDirectory { file: 2, path: String::new() };
        let ops = [open(1, "f"), root, Op::SyncBegun(2), Op::SyncDone(2), written(1, 0, 1024), Op::SyncBegun(1)];
        let after = [written(2, 0, 1024), Op::SyncDone(1), written(3, 1024, 1024)];
        let found = cuts(&disk(&[], ops.into_iter().chain(after)), "f");
        let found = found.into_iter().map(Option::unwrap).collect::<Vec<_>>();
        assert!(
            found.iter().all(|bytes| bytes.len() >= 1024 && bytes[..1024].iter().all(|byte| [1, 2].contains(byte)))
        );
        assert!(found.iter().any(|bytes| bytes[0] == 1 && bytes[512] == 2), "the second sector alone");
        assert!(found.iter().any(|bytes| bytes.len() == 2048 && bytes[1024] == 0 && bytes[1536] == 3), "a hole");
        assert!(found.iter().all(|bytes| bytes.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0]))));
    }

    #[test]
    fn a_sync_that_does_not_count_covers_nothing() {
        let ops = [open(1, "f"), written(1, 0, 512), Op::SyncBegun(1), Op::SyncDone(1)];
        let kept = |unsynced: &'static [&'static str]| {
            let disk = disk(unsynced, ops.clone());
            disk.files[0].safe.len()
        };
        assert_eq!((kept(&[]), kept(&["f"]), kept(&["g"])), (512, 0, 512));
    }

    #[test]
    fn names_survive_in_order_and_surely_only_with_their_directory() {
        let rename = |from: &str, to: &str| Op::Rename { from: from.to_owned(), to: to.to_owned() };
        let ops = [open(1, "a"), Op::SyncBegun(1), Op::SyncDone(1), rename("a", "b"), open(2, "c")];
        let mut disk = disk(&[], ops);
        let mut random = fastrand::Rng::with_seed(7);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..100 {
            let directory = tempfile::tempdir().unwrap();
            disk.cut(directory.path(), &[], &mut random).unwrap();
            seen.insert(["a", "b", "c"].map(|name| directory.path().join(name).exists()));
        }
        let prefixes = [[false; 3], [true, false, false], [false, true, false], [false, true, true]];
        assert_eq!(seen, prefixes.into());
        let root = Op::OpenDirectory { file: 3, path: String::new() };
        [root, Op::SyncBegun(3), Op::SyncDone(3)].iter().for_each(|op| disk.apply(op).unwrap());
        assert!(cuts(&disk, "c").iter().all(Option::is_some));
    }
}
