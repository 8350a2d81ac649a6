//! Where issues live: does this one exist, what is its full id, is it open,
//! and which one should be taken next?
//!
//! What can't be read is an error with the reason, never "not found" and never
//! "open". Whoever may push has a hand in the data, so all that is read is
//! bounded, and no answer about one issue looks at the others where the format
//! allows that.
//!
//! ```text
//! git_issue, git_bug   one ref an issue; by_ref has what they share,
//!                      refs finds them, chain walks their commits
//! beads                one file for all issues
//! command              an admin's program, for trackers elsewhere
//! objects              git objects within a budget
//! reported             an issue in the words of a forge or a program
//! unreadable           why something can't be read
//! ```

mod beads;
mod by_ref;
mod chain;
mod command;
#[cfg(test)]
mod fuzz;
mod git_bug;
mod git_issue;
mod objects;
mod refs;
mod reported;
mod unreadable;

use std::time::Instant;

use git_claim_api::ids::IssueId;
use git_claim_api::push::Update;
use git_claim_api::text::escape;

use self::beads::Beads;
use self::by_ref::ByRef;
use self::command::Program;
use crate::host::{Host, HostError};
use crate::repository::{Repository, RepositoryError, RepositorySettings};
use crate::server::Remedy;

/// The longest title that is passed on, in characters.
const MAX_TITLE: usize = 500;

/// One issue, as its tracker knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// The full id.
    pub id: IssueId,
    pub is_open: bool,
    /// Not empty, and not longer than a title is.
    pub title: Option<String>,
}

impl Issue {
    fn new(id: IssueId, is_open: bool, title: Option<String>) -> Issue {
        let title = title.map(|title| title.trim().chars().take(MAX_TITLE).collect::<String>());
        Issue {
            id,
            is_open,
            title: title.filter(|title| !title.is_empty()),
        }
    }
}

/// Why a tracker has no answer.
#[derive(Debug, thiserror::Error)]
pub enum TrackerError {
    #[error("there is no issue '{0}'")]
    NotFound(IssueId),
    #[error("'{typed}' could be {}; give more of the id", .first.join(", "))]
    Ambiguous {
        typed: IssueId,
        /// The first matches.
        first: Vec<String>,
    },
    #[error("the tracker {tracker} cannot be read: {why}")]
    Broken { tracker: &'static str, why: String },
    #[error("the tracker {0} has too much to read in the time of one request")]
    Late(&'static str),
    #[error("claim.tracker is '{}'; this version knows {}", escape(.0), NAMES.join(", "))]
    Unknown(String),
    #[error("claim.tracker is '{tracker}', but {why}")]
    Unusable { tracker: &'static str, why: String },
    #[error(
        "this repository has issues in {}; its admin has to choose one with claim.tracker in its config",
        .0.join(" and ")
    )]
    Several(Vec<&'static str>),
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    #[error(
        "nothing says which issue is next: the tracker here is '{0}', which knows no order; claim one by its id"
    )]
    NoOrder(&'static str),
}

/// Who mends what cannot be read of the tracker called `name`.
pub fn mended_by(name: &str) -> Remedy {
    match name {
        HOST | command::NAME => Remedy::AdminPerhaps,
        _ => Remedy::Push,
    }
}

const HOST: &str = "host";
const NONE: &str = "none";

/// What `claim.tracker` may say.
const NAMES: [&str; 6] = [
    git_issue::FORMAT.name,
    git_bug::FORMAT.name,
    beads::NAME,
    command::NAME,
    HOST,
    NONE,
];

/// A repository's tracker.
pub struct Tracker<'a>(Kind<'a>);

enum Kind<'a> {
    /// The host's own, through the ABI.
    Host {
        host: &'a dyn Host,
        repo: &'a str,
    },
    ByRef(ByRef<'a>),
    Beads(Beads<'a>),
    Command(Program<'a>),
    /// Every valid id is open.
    None,
}

/// Open issues in the order in which one should take them, each read when it
/// is asked for.
pub type Ready<'t> = Box<dyn Iterator<Item = Result<Issue, TrackerError>> + 't>;

impl<'a> Tracker<'a> {
    /// The tracker of `repo`: the one that its config names, or the only one
    /// that is there. It has until `deadline` for its answers.
    ///
    /// # Errors
    /// Two are there, none that this version can read is, or the repository
    /// can't be read.
    pub fn of(
        host: &'a dyn Host,
        repo: &'a str,
        repository: Option<&'a Repository>,
        deadline: Instant,
    ) -> Result<Tracker<'a>, TrackerError> {
        let place = Place {
            host,
            repo,
            repository,
            settings: match repository {
                Some(repository) => repository.settings()?,
                None => RepositorySettings::default(),
            },
            deadline,
        };
        let kind = match place.settings.tracker.as_deref() {
            Some(name) => place.named(name)?,
            None => place.found()?,
        };
        Ok(Tracker(kind))
    }

    /// The name in `claim.tracker`.
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    /// Whether it can say which issue is next.
    pub fn knows_order(&self) -> bool {
        !matches!(self.0, Kind::Host { .. } | Kind::None)
    }

    /// The issue that `typed` stands for.
    ///
    /// # Errors
    /// [`TrackerError`].
    pub fn resolve(&self, typed: &IssueId) -> Result<Issue, TrackerError> {
        match &self.0 {
            Kind::Host { host, repo } => resolve_at_host(*host, repo, typed),
            Kind::ByRef(tracker) => tracker.resolve(typed),
            Kind::Beads(tracker) => tracker.resolve(typed),
            Kind::Command(program) => program.resolve(typed),
            Kind::None => Ok(Issue::new(typed.clone(), true, None)),
        }
    }

    /// The open issues in the order in which one should take them.
    ///
    /// # Errors
    /// [`TrackerError`]; a tracker without an order.
    pub fn ready(&self) -> Result<Ready<'_>, TrackerError> {
        Ok(match &self.0 {
            Kind::ByRef(tracker) => Box::new(tracker.ready()?),
            Kind::Beads(tracker) => Box::new(tracker.ready()?),
            Kind::Command(program) => Box::new(program.ready()?),
            Kind::Host { .. } | Kind::None => return Err(TrackerError::NoOrder(self.name())),
        })
    }
}

impl Tracker<'_> {
    /// Which of `issues` a push has closed: they were open before it, and are
    /// closed now. `default_branch` is a full ref. Only trackers in the
    /// repository itself are closed by a push; what can't be read counts as
    /// open, and goes to `warn`.
    pub fn closed_by(
        &self,
        updates: &[Update],
        issues: &[&IssueId],
        default_branch: Option<&str>,
        warn: &dyn Fn(TrackerError),
    ) -> Vec<IssueId> {
        match &self.0 {
            Kind::ByRef(tracker) => issues
                .iter()
                .filter(|id| match tracker.is_closed_by(id, updates) {
                    Ok(is_closed) => is_closed,
                    Err(error) => {
                        warn(error);
                        false
                    }
                })
                .map(|id| (*id).clone())
                .collect(),
            Kind::Beads(tracker) => {
                let update = updates
                    .iter()
                    .find(|update| Some(update.reference.as_str()) == default_branch);
                let before = update
                    .and_then(|update| update.old.as_ref())
                    .and_then(|old| old.as_str().parse().ok());
                let Some(before) = before else {
                    return Vec::new();
                };
                tracker
                    .closed_since(issues, before)
                    .unwrap_or_else(|error| {
                        warn(error);
                        Vec::new()
                    })
            }
            Kind::Host { .. } | Kind::Command(_) | Kind::None => Vec::new(),
        }
    }
}

impl Kind<'_> {
    fn name(&self) -> &'static str {
        match self {
            Kind::Host { .. } => HOST,
            Kind::ByRef(tracker) => tracker.format.name,
            Kind::Beads(_) => beads::NAME,
            Kind::Command(_) => command::NAME,
            Kind::None => NONE,
        }
    }
}

/// Where a tracker is looked for.
struct Place<'a> {
    host: &'a dyn Host,
    repo: &'a str,
    repository: Option<&'a Repository>,
    settings: RepositorySettings,
    deadline: Instant,
}

impl<'a> Place<'a> {
    /// The tracker that the repository's config names. Its data need not be
    /// there yet.
    fn named(&self, name: &str) -> Result<Kind<'a>, TrackerError> {
        let unusable = |tracker, why: &str| TrackerError::Unusable {
            tracker,
            why: why.to_owned(),
        };
        match name {
            NONE => return Ok(Kind::None),
            HOST => {
                return self
                    .host_tracker()
                    .ok_or_else(|| unusable(HOST, "this server has no issues of its own"));
            }
            command::NAME => {
                return self.command()?.ok_or_else(|| {
                    unusable(command::NAME, "claim.trackerCommand names no program")
                });
            }
            _ => {}
        }
        let unknown = || TrackerError::Unknown(name.to_owned());
        let git = self.repository.ok_or_else(unknown)?.git()?;
        let mut formats = self.formats(git).into_iter();
        formats.find(|kind| kind.name() == name).ok_or_else(unknown)
    }

    /// The only tracker that is there.
    fn found(&self) -> Result<Kind<'a>, TrackerError> {
        let mut found: Vec<Kind<'a>> = Vec::new();
        found.extend(self.host_tracker());
        found.extend(self.command()?);
        if let Some(repository) = self.repository {
            for kind in self.formats(repository.git()?) {
                let exists = match &kind {
                    Kind::ByRef(tracker) => tracker.exists()?,
                    Kind::Beads(tracker) => tracker.exists()?,
                    _ => false,
                };
                if exists {
                    found.push(kind);
                }
            }
        }
        if found.len() > 1 {
            return Err(TrackerError::Several(
                found.iter().map(Kind::name).collect(),
            ));
        }
        Ok(found.pop().unwrap_or(Kind::None))
    }

    /// The trackers whose issues are kept in the repository itself.
    fn formats(&self, git: &'a git2::Repository) -> [Kind<'a>; 3] {
        [
            Kind::ByRef(ByRef::new(git, &git_issue::FORMAT, self.deadline)),
            Kind::ByRef(ByRef::new(git, &git_bug::FORMAT, self.deadline)),
            Kind::Beads(Beads::new(git)),
        ]
    }

    fn host_tracker(&self) -> Option<Kind<'a>> {
        self.host.has_tracker().then_some(Kind::Host {
            host: self.host,
            repo: self.repo,
        })
    }

    fn command(&self) -> Result<Option<Kind<'a>>, TrackerError> {
        let (Some(setting), Some(repository)) = (&self.settings.tracker_command, self.repository)
        else {
            return Ok(None);
        };
        match Program::new(setting, self.repo, repository.path(), self.deadline) {
            Ok(program) => Ok(Some(Kind::Command(program))),
            Err(why) => Err(RepositoryError::Setting {
                key: "claim.trackerCommand",
                value: escape(setting),
                why,
            }
            .into()),
        }
    }
}

fn resolve_at_host(host: &dyn Host, repo: &str, typed: &IssueId) -> Result<Issue, TrackerError> {
    let broken = |why: String| TrackerError::Broken { tracker: HOST, why };
    let json = match host.resolve_issue(repo, typed.as_str()) {
        Err(HostError::NotFound) => return Err(TrackerError::NotFound(typed.clone())),
        Err(HostError::Failed(status)) => {
            return Err(broken(format!("it answered with status {status}")));
        }
        Ok(json) => json,
    };
    reported::issue(json.as_bytes(), None).map_err(|error| broken(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use assert_fs::TempDir;
    use git_claim_api::access::Access;

    use super::*;
    use crate::host::{Level, Stream};

    /// A forge that knows the issue 42.
    struct Forge;

    impl Host for Forge {
        fn now_ms(&self) -> i64 {
            0
        }
        fn log(&self, _: Level, _: &str) {}
        fn resolve_repo(&self, _: &str) -> Result<String, HostError> {
            Err(HostError::NotFound)
        }
        fn authorize(&self, _: &str, _: Access) -> bool {
            false
        }
        fn write(&self, _: Stream, _: &[u8]) -> Result<(), HostError> {
            Ok(())
        }
        fn is_cancelled(&self) -> bool {
            false
        }
        fn repo_path(&self, _: &str) -> Result<Option<PathBuf>, HostError> {
            Ok(None)
        }
        fn has_tracker(&self) -> bool {
            true
        }
        fn resolve_issue(&self, repo: &str, issue: &str) -> Result<String, HostError> {
            assert_eq!(repo, "r.git");
            match issue {
                "42" => Ok(r#"{"id":"42","state":"closed","title":"x"}"#.to_owned()),
                "43" => Ok("{}".to_owned()),
                "44" => Err(HostError::Failed(-5)),
                _ => Err(HostError::NotFound),
            }
        }
    }

    fn soon() -> Instant {
        Instant::now() + std::time::Duration::from_secs(60)
    }

    #[test]
    fn a_forge_with_issues_of_its_own_is_asked() {
        let tracker = Tracker::of(&Forge, "r.git", None, soon()).unwrap();
        assert_eq!(tracker.name(), "host");
        let ask = |id: &str| tracker.resolve(&id.parse().unwrap());
        let issue = ask("42").unwrap();
        assert_eq!((issue.is_open, issue.title.as_deref()), (false, Some("x")));
        assert!(matches!(ask("43"), Err(TrackerError::Broken { .. })));
        assert!(matches!(ask("44"), Err(TrackerError::Broken { .. })));
        assert!(matches!(ask("45"), Err(TrackerError::NotFound(_))));
        assert!(matches!(
            tracker.ready(),
            Err(TrackerError::NoOrder("host"))
        ));
    }

    #[test]
    fn a_forge_s_own_issues_are_a_tracker_like_any_other() {
        let folder = TempDir::new().unwrap();
        let git = git2::Repository::init_bare(folder.path()).unwrap();
        let repository = Repository::at(folder.path().to_owned());
        let of = || Tracker::of(&Forge, "r.git", Some(&repository), soon());
        assert_eq!(of().unwrap().name(), "host");
        let blob = git.blob(b"").unwrap();
        git.reference("refs/issues/1", blob, true, "").unwrap();
        assert!(
            matches!(of(), Err(TrackerError::Several(found)) if found == ["host", "git-issue"])
        );
        let set = |name| {
            git.config()
                .unwrap()
                .set_str("claim.tracker", name)
                .unwrap()
        };
        set("host");
        assert_eq!(of().unwrap().name(), "host");
        set("git-issue");
        assert_eq!(of().unwrap().name(), "git-issue");
    }

    #[test]
    fn titles_are_bounded() {
        let title =
            |text: &str| Issue::new("1".parse().unwrap(), true, Some(text.to_owned())).title;
        assert_eq!(title(" "), None);
        assert_eq!(title(" a b \n").as_deref(), Some("a b"));
        assert_eq!(
            title(&"é".repeat(1_000)).map(|title| title.chars().count()),
            Some(MAX_TITLE)
        );
    }
}
