//! From every spelling of a repository to the one id and the one place.
//!
//! A name is put in order as text first, so that nothing outside reposDir is
//! ever looked at, not even to learn whether it exists; only then are links
//! followed, and what they lead to must lie below reposDir as well. It is opened
//! by its real path, on which no link may stand by then: what is decided about a
//! repository is decided about the folder that was found.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use git_claim_api::text::is_unsafe;
use rustix::fs::{Mode, OFlags};

use crate::trusted::descriptor;

/// The longest id that the plugin's interface takes, in bytes.
pub const MOST_ID: usize = 255;

/// A repository that is there.
#[derive(Debug, Clone)]
pub struct Repo {
    /// Its permanent id: the real path below reposDir.
    pub id: String,
    /// Its git directory's real path.
    pub path: PathBuf,
    opened: Rc<OwnedFd>,
}

impl Repo {
    /// A path of the git directory that was found, whatever lies at [`Repo::path`]
    /// by now; for this process alone.
    pub fn found(&self) -> PathBuf {
        descriptor(&*self.opened)
    }
}

/// The folder below which repositories are served.
#[derive(Debug, Clone)]
pub struct Repos {
    /// As the settings name it.
    configured: PathBuf,
    /// Links resolved.
    root: PathBuf,
}

impl Repos {
    /// The repositories below `repos_dir`, an absolute path.
    ///
    /// # Errors
    /// It is not there, or cannot be reached.
    pub fn new(repos_dir: &Path) -> io::Result<Repos> {
        Ok(Repos {
            configured: repos_dir.to_owned(),
            root: repos_dir.canonicalize()?,
        })
    }

    /// reposDir, links resolved.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The repository that `name` stands for: the path in a git URL.
    pub fn resolve(&self, name: &str) -> Option<Repo> {
        let relative = self.relative(name)?;
        candidates(&relative).find_map(|candidate| self.at(&self.root.join(candidate)))
    }

    /// The repository with this very id.
    pub fn by_id(&self, id: &str) -> Option<Repo> {
        self.at(&self.root.join(in_order(id, false)?))
            .filter(|repo| repo.id == id)
    }

    /// The id that a bare repository would have of which nothing is there.
    pub fn would_be(&self, name: &str) -> Option<String> {
        let mut id = self.relative(name)?;
        if !id.ends_with(DOT_GIT) {
            id.push_str(DOT_GIT);
        }
        valid_id(&id).then_some(id)
    }

    /// The id of the git directory whose real path is `path`, if it lies below
    /// reposDir.
    pub fn id_of(&self, path: &Path) -> Option<String> {
        let id = path.strip_prefix(&self.root).ok()?.to_str()?;
        valid_id(id).then(|| id.to_owned())
    }

    /// `name` below reposDir, as text alone.
    fn relative(&self, name: &str) -> Option<String> {
        // git sends `~/r.git` for ssh://host/~/r.git, and reposDir is the home
        // that is meant.
        let name = name
            .strip_prefix("/~/")
            .or(name.strip_prefix("~/"))
            .unwrap_or(name);
        let absolute = name.starts_with('/');
        let relative = in_order(name, absolute)?;
        if absolute {
            let whole = Path::new("/").join(&relative);
            for root in [&self.root, &self.configured] {
                if let Ok(below) = whole.strip_prefix(root) {
                    return some_text(below.to_str()?);
                }
            }
        }
        some_text(&relative)
    }

    /// The repository whose git directory is at `path`, links resolved.
    fn at(&self, path: &Path) -> Option<Repo> {
        let path = path.canonicalize().ok()?;
        let id = self.id_of(&path)?;
        let opened = Rc::new(self.descend(&id)?);
        is_git_directory(&descriptor(&*opened)).then_some(Repo { id, path, opened })
    }

    /// Opens the folder `id`, without following a link. `None` also where it lies
    /// in another repository, as what lies there may have come by a push: names of
    /// refs make folders, and a worktree holds whatever was committed.
    fn descend(&self, id: &str) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut folder = rustix::fs::open(&self.root, flags, Mode::empty()).ok()?;
        for (depth, part) in id.split('/').enumerate() {
            let above = descriptor(&folder);
            let is_its_own = part == DOT_GIT && id.ends_with(&format!("/{DOT_GIT}"));
            let has_another = !is_its_own && above.join(DOT_GIT).symlink_metadata().is_ok();
            if depth > 0 && (has_another || is_git_directory(&above)) {
                return None;
            }
            folder = rustix::fs::openat(&folder, part, flags, Mode::empty()).ok()?;
        }
        Some(folder)
    }
}

/// What lies in a worktree, and is the repository or leads there; and what the name
/// of a bare one ends in.
const DOT_GIT: &str = ".git";

/// The places where git looks for the repository `path`, in its order.
pub fn candidates(path: &str) -> impl Iterator<Item = String> {
    ["/.git", "", ".git/.git", ".git"]
        .into_iter()
        .map(move |suffix| format!("{path}{suffix}"))
}

/// Whether `id` can be one: 1 to 255 bytes of plain text.
pub fn valid_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= MOST_ID && !id.chars().any(is_unsafe)
}

/// The parts of `name` without `.`, `..`, empty ones and slashes at either end.
/// `None` where `..` leads above the start; above the root of the file system
/// is the root itself.
fn in_order(name: &str, absolute: bool) -> Option<String> {
    let mut parts = Vec::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                if parts.pop().is_none() && !absolute {
                    return None;
                }
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

fn some_text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// Whether `path` is a git directory, as git itself decides it, with its objects
/// and refs in it: a `commondir` would lead to another one, anywhere.
fn is_git_directory(path: &Path) -> bool {
    path.join("HEAD").symlink_metadata().is_ok()
        && path.join("commondir").symlink_metadata().is_err()
        && path.join("objects").is_dir()
        && path.join("refs").is_dir()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use assert_fs::TempDir;
    use assert_fs::prelude::*;

    use super::*;

    fn git_directory(path: &Path) {
        std::fs::create_dir_all(path.join("objects")).unwrap();
        std::fs::create_dir_all(path.join("refs")).unwrap();
        std::fs::write(path.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    }

    /// reposDir `git` beside a repository that must not be reached.
    fn site() -> (TempDir, Repos) {
        let site = TempDir::new().unwrap();
        let at = |path: &str| site.child(path).path().to_owned();
        git_directory(&at("git/r.git"));
        git_directory(&at("git/acme/app.git"));
        git_directory(&at("git/work/.git"));
        git_directory(&at("git/my repo.git"));
        git_directory(&at("secret.git"));
        std::fs::create_dir_all(at("git/empty")).unwrap();
        std::fs::write(at("git/file.git"), "").unwrap();
        symlink("r.git", at("git/alias.git")).unwrap();
        symlink("acme", at("git/team")).unwrap();
        symlink("../secret.git", at("git/out.git")).unwrap();
        symlink("..", at("git/up")).unwrap();
        symlink("git", at("link")).unwrap();
        let repos = Repos::new(&at("link")).unwrap();
        (site, repos)
    }

    #[test]
    fn a_git_directory_that_borrows_anothers_is_not_served() {
        let dir = TempDir::new().unwrap();
        git_directory(&dir.child("a.git"));
        let repos = Repos::new(dir.path()).unwrap();
        assert!(repos.resolve("a.git").is_some());
        dir.child("a.git/commondir")
            .write_str("/elsewhere")
            .unwrap();
        assert!(repos.resolve("a.git").is_none());
    }

    #[test]
    fn what_lies_in_another_repository_is_none() {
        let dir = TempDir::new().unwrap();
        for place in [
            "a.git",
            "a.git/refs/heads/x",
            "work/.git",
            "work/sub/b.git",
            "work/.git/modules/c",
            "linked/sub/d.git",
        ] {
            git_directory(&dir.child(place));
        }
        dir.child("linked/.git").write_str("gitdir: x\n").unwrap();
        let repos = Repos::new(dir.path()).unwrap();
        for name in ["a", "work"] {
            assert!(repos.resolve(name).is_some(), "{name}");
        }
        for name in [
            "a.git/refs/heads/x",
            "work/sub/b.git",
            "work/.git/modules/c",
            "linked/sub/d.git",
        ] {
            assert!(repos.resolve(name).is_none(), "{name}");
            assert!(repos.by_id(name).is_none(), "{name}");
        }
    }

    #[test]
    fn what_was_found_stays_what_it_is() {
        let dir = TempDir::new().unwrap();
        git_directory(&dir.child("a/r.git"));
        git_directory(&dir.child("b/r.git"));
        dir.child("a/r.git/config").write_str("first").unwrap();
        let repos = Repos::new(dir.path()).unwrap();
        let repo = repos.resolve("a/r").unwrap();
        let at = |path: &str| dir.child(path).path().to_owned();
        std::fs::rename(at("a"), at("c")).unwrap();
        symlink("b", at("a")).unwrap();
        let text = std::fs::read_to_string(repo.found().join("config"));
        assert_eq!(text.unwrap(), "first");
        // Asked for again, it is the other one.
        assert_eq!(repos.resolve("a/r").unwrap().id, "b/r.git");
    }

    #[test]
    fn every_spelling_is_one_repository() {
        let (site, repos) = site();
        let root = site.path().canonicalize().unwrap();
        let real = root.join("git").display().to_string();
        let link = site.child("link").path().display().to_string();
        for (spelling, id) in [
            ("r.git", "r.git"),
            ("r", "r.git"),
            ("/r.git", "r.git"),
            ("/r", "r.git"),
            ("~/r.git", "r.git"),
            ("/~/r.git", "r.git"),
            ("//r.git", "r.git"),
            ("r.git/", "r.git"),
            ("r/", "r.git"),
            ("./r.git", "r.git"),
            ("acme/../r.git", "r.git"),
            ("nothing/../r.git", "r.git"),
            ("/../r.git", "r.git"),
            ("alias.git", "r.git"),
            ("alias", "r.git"),
            ("acme/app", "acme/app.git"),
            ("acme//app.git", "acme/app.git"),
            ("acme/./app.git/.", "acme/app.git"),
            ("team/app", "acme/app.git"),
            ("work", "work/.git"),
            ("work/.git", "work/.git"),
            ("my repo", "my repo.git"),
            (&format!("{real}/r.git"), "r.git"),
            (&format!("{real}/r"), "r.git"),
            (&format!("{link}/r.git"), "r.git"),
            (&format!("{link}/./team/app/"), "acme/app.git"),
            (&format!("/..{real}/r.git"), "r.git"),
        ] {
            for repo in [repos.resolve(spelling), repos.by_id(id)] {
                let repo = repo.expect(spelling);
                assert_eq!(repo.id, id, "{spelling}");
                assert_eq!(repo.path, root.join("git").join(id), "{spelling}");
                assert_eq!(repo.found().read_link().unwrap(), repo.path);
            }
        }
    }

    #[test]
    fn nothing_outside_is_reachable_and_nothing_else_is_a_repository() {
        let (site, repos) = site();
        let secret = site.child("secret.git").path().display().to_string();
        let real = site.path().canonicalize().unwrap().join("git");
        for name in [
            "",
            "/",
            ".",
            "~",
            "~/",
            "..",
            "../secret.git",
            "../git/r.git",
            "acme/../../secret.git",
            "~/../secret.git",
            "/~/../secret.git",
            "out.git",
            "out",
            "up/secret.git",
            "up/git/../secret.git",
            &secret,
            &format!("{}/../secret.git", real.display()),
            &real.display().to_string(),
            "empty",
            "file",
            "file.git",
            "acme",
            "r.git/objects",
            "R.git",
            "r.gi",
            "r.git.git.git",
            "~ann/r.git",
            "r.git\0",
            "/proc/self/root",
        ] {
            assert!(repos.resolve(name).is_none(), "{name:?}");
        }
        for id in ["alias.git", "r", "../secret.git", "/r.git", "./r.git", ""] {
            assert!(repos.by_id(id).is_none(), "{id:?}");
        }
    }

    #[test]
    fn reposdir_itself_is_no_repository() {
        let site = TempDir::new().unwrap();
        git_directory(site.path());
        let repos = Repos::new(site.path()).unwrap();
        for name in ["/", ".", "x/..", &site.path().display().to_string()] {
            assert!(repos.resolve(name).is_none(), "{name:?}");
        }
    }
}
