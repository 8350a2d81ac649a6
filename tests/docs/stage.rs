//! Where the examples of the manual happen.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::pages;
use crate::support::client::Person;
use crate::support::forge::{Forge, REPO, git, url};
use crate::support::programs;
use crate::support::session::Typist;

/// A forge with a small project, and people who have cloned it: `ann`, who is
/// the reader, and `bob` may claim, `carol` may end the claims of others. `git`
/// is the account that the forge runs as.
pub struct Stage {
    forge: Forge,
    typists: BTreeMap<String, Typist>,
}

const READER: &str = "ann";
const SERVER: &str = "git";

const RIGHTS: &str = "\twrite = ann, bob\n\tadmin = carol\n";

const ISSUES: &str = r#"
{"id":"42","title":"Crash on empty input","status":"open","priority":1}
{"id":"43","title":"Name the limit","status":"open","priority":2}
{"id":"44","title":"Wrap long titles","status":"open","priority":2}
"#;

const WORK: &str = "#!/bin/sh\necho \"working on $GIT_CLAIM_ISSUE\"\n";

impl Stage {
    pub fn new() -> Stage {
        let forge = Forge::with_settings(RIGHTS);
        let repo = forge.repos().join(REPO);
        git(&repo, &["config", "claim.tracker", "beads"]);
        let draft = forge.dir().join("draft");
        let draft_path = draft.to_str().unwrap();
        git(&repo, &["worktree", "add", "-q", draft_path, "main"]);
        fs::create_dir(draft.join(".beads")).unwrap();
        fs::write(draft.join(".beads/issues.jsonl"), ISSUES.trim_start()).unwrap();
        fs::write(draft.join("work-on-it"), WORK).unwrap();
        git(&draft, &["add", "."]);
        git(&draft, &["update-index", "--chmod=+x", "work-on-it"]);
        git(&draft, &["commit", "-qm", "Begin"]);
        git(&repo, &["worktree", "remove", "--force", draft_path]);
        assert_cmd::Command::new(programs::server())
            .args(["setup", REPO, "--config"])
            .arg(forge.config())
            .assert()
            .success();
        Stage {
            forge,
            typists: BTreeMap::new(),
        }
    }

    /// Types a command, as somebody or as the reader; what was answered, with the
    /// places of this machine as those of a real one.
    pub fn types(&mut self, who: Option<&str>, command: &str) -> String {
        let said = self.typist(who.unwrap_or(READER)).types(command);
        self.as_shown(&said)
    }

    fn typist(&mut self, who: &str) -> &mut Typist {
        let forge = &self.forge;
        self.typists.entry(who.to_owned()).or_insert_with(|| {
            let person = forge.person(who);
            install_pages(&person);
            let client = match who {
                SERVER => {
                    settings_at_home(forge, &person);
                    person.at(forge.repos())
                }
                _ => {
                    let home = person.at(person.home());
                    home.ok(&format!("git clone -q {} app", url(REPO)));
                    home.at(person.home().join("app"))
                }
            };
            Typist::new(client)
        })
    }

    fn as_shown(&self, said: &str) -> String {
        let mut said = said.to_owned();
        let mut put = |here: &Path, there: &str| {
            said = said.replace(here.to_str().unwrap(), there);
        };
        put(&self.forge.repos(), "/srv/git");
        put(self.forge.dir(), "/home");
        put(
            &programs::plugin(),
            "/usr/lib/git-claim/libgit_claim_plugin.so",
        );
        put(programs::folder(), "/usr/bin");
        said
    }
}

/// The manual where `man` finds it: beside what is in the PATH.
fn install_pages(person: &Person) {
    for page in pages() {
        let section = page.extension().unwrap().to_str().unwrap();
        let folder = person.home().join(format!("share/man/man{section}"));
        fs::create_dir_all(&folder).unwrap();
        symlink(&page, folder.join(page.file_name().unwrap())).unwrap();
    }
}

/// The forge's settings file where `git-claim-server` finds it by itself.
fn settings_at_home(forge: &Forge, person: &Person) {
    let folder = person.home().join(".config/git-claim");
    fs::create_dir_all(&folder).unwrap();
    fs::copy(forge.config(), folder.join("config")).unwrap();
}
