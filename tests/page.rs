//! The page: `git-claim-server cgi` behind lighttpd, looked at with Chromium.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::forge::{Forge, REPO, close_issue, git};
use crate::support::issue;
use crate::support::programs;

/// Behind a password, and without one.
const MEMBERS: &str = "/claims";
const PUBLIC: &str = "/public";

/// The password of everybody who looks.
const PASSWORD: &str = "secret";

/// A web server in front of a forge's claims.
struct Web {
    process: Child,
    port: u16,
}

impl Web {
    fn before(forge: &Forge) -> Web {
        let dir = forge.dir().join("www");
        fs::create_dir(&dir).unwrap();
        let script = format!(
            "#!/bin/sh\nexec {} cgi --config {}\n",
            programs::server().display(),
            forge.config().display()
        );
        let program = dir.join("claims.cgi");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let users: String = ["alice", "dave", "eve"]
            .map(|name| format!("{name}:{PASSWORD}\n"))
            .concat();
        fs::write(dir.join("users"), users).unwrap();
        // The port was free a moment ago; somebody else may have been quicker.
        (0..10)
            .find_map(|_| Web::start(&dir))
            .expect("lighttpd starts")
    }

    fn start(dir: &Path) -> Option<Web> {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let config = dir.join("lighttpd.conf");
        let text = format!(
            r#"server.document-root = "{dir}"
server.bind = "127.0.0.1"
server.port = {port}
server.modules = ("mod_alias", "mod_auth", "mod_authn_file", "mod_cgi")
alias.url = ("{MEMBERS}" => "{dir}/claims.cgi", "{PUBLIC}" => "{dir}/claims.cgi")
cgi.assign = (".cgi" => "")
auth.backend = "plain"
auth.backend.plain.userfile = "{dir}/users"
auth.require = ("{MEMBERS}" => (
    "method" => "basic", "realm" => "claims", "require" => "valid-user"
))
"#,
            dir = dir.display()
        );
        fs::write(&config, text).unwrap();
        let mut process = Command::new(programs::need("lighttpd"))
            .arg("-D")
            .arg("-f")
            .arg(&config)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut said = lines.by_ref().map_while(Result::ok);
        if !said.any(|line| line.contains("server started")) {
            process.wait().unwrap();
            return None;
        }
        // What a CGI program says goes there too, and must not fill the pipe.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Some(Web { process, port })
    }

    /// What `viewer` gets, as the browser would, or nobody in particular.
    fn get(&self, viewer: Option<&str>, path: &str) -> Answer {
        self.request("GET", viewer, path, "")
    }

    fn request(&self, method: &str, viewer: Option<&str>, path: &str, headers: &str) -> Answer {
        let (place, login) = match viewer {
            Some(name) => (MEMBERS, format!("Authorization: Basic {}\r\n", basic(name))),
            None => (PUBLIC, String::new()),
        };
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(
            stream,
            "{method} {place}{path} HTTP/1.0\r\nHost: forge\r\n{login}{headers}\r\n"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let mut head = head.split("\r\n");
        let status = head.next().unwrap().split(' ').nth(1).unwrap();
        Answer {
            status: status.parse().unwrap(),
            headers: head.map(str::to_owned).collect(),
            body: body.to_owned(),
        }
    }

    /// The page as Chromium shows it to `viewer`: its text, and what it
    /// complained about.
    fn browse(&self, viewer: &str, path: &str) -> (String, String) {
        let profile = assert_fs::TempDir::new().unwrap();
        let url = format!(
            "http://{viewer}:{PASSWORD}@127.0.0.1:{}{MEMBERS}{path}",
            self.port
        );
        let mut chromium = assert_cmd::Command::new(programs::need("chromium"));
        chromium
            .env("HOME", profile.path())
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--enable-logging=stderr",
                "--dump-dom",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(url);
        let output = chromium.assert().success().get_output().clone();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let console: Vec<String> = text(&output.stderr)
            .lines()
            .filter(|line| line.contains("CONSOLE"))
            .map(str::to_owned)
            .collect();
        (text(&output.stdout), console.join("\n"))
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Answer {
    status: u16,
    headers: Vec<String>,
    body: String,
}

impl Answer {
    /// Without what differs from one moment to the next.
    fn timeless(&self) -> (u16, Vec<&String>, &str) {
        let headers = self.headers.iter();
        let headers = headers.filter(|header| !header.starts_with("Date: "));
        (self.status, headers.collect(), &self.body)
    }
}

/// The credentials of basic authentication.
fn basic(name: &str) -> &'static str {
    // Base64 of `NAME:secret`.
    match name {
        "alice" => "YWxpY2U6c2VjcmV0",
        "dave" => "ZGF2ZTpzZWNyZXQ=",
        "eve" => "ZXZlOnNlY3JldA==",
        _ => panic!("{name} has no password"),
    }
}

fn repo() -> String {
    format!("/{REPO}")
}

fn issue_page(issue: &str) -> String {
    format!("/{REPO}/{issue}")
}

/// The part of a page between its heading `Claimed` and its heading `Free`, and
/// the part behind that.
fn held_and_free(page: &str) -> (&str, &str) {
    let (_, rest) = page.split_once("<h2>Claimed").unwrap();
    rest.split_once("<h2>Free").unwrap()
}

#[test]
fn who_holds_what_is_there_to_see_until_the_claim_runs_out() {
    let forge = Forge::new();
    let web = Web::before(&forge);
    let alice = forge.client("alice");

    let (page, console) = web.browse("dave", &repo());
    assert_eq!(console, "");
    assert!(page.contains("Nobody holds an issue."), "{page}");
    let (_, free) = held_and_free(&page);
    assert!(free.contains("Crash on empty input"), "{page}");
    assert!(!free.contains(issue::CLOSED), "{page}");

    alice.ok("git claim ae1c --ttl 2h --note parser");
    let (page, console) = web.browse("dave", &repo());
    // The browser had nothing to refuse: the policy lets the style through.
    assert_eq!(console, "");
    let (held, free) = held_and_free(&page);
    for wanted in [
        "Crash on empty input",
        "alice",
        "since <time",
        "until <time",
        "parser",
    ] {
        assert!(held.contains(wanted), "{wanted} is missing in {page}");
    }
    assert!(!free.contains("Crash on empty input"), "{page}");
    let (page, _) = web.browse("dave", &issue_page("ae1c051"));
    assert!(page.contains(issue::CRASH), "{page}");
    assert!(page.contains("alice") && page.contains(">now<"), "{page}");

    forge.ledger().rewind(2 * 3_600 + 1);
    let before = forge.ledger().dump();
    let (page, _) = web.browse("dave", &repo());
    assert!(page.contains("Nobody holds an issue."), "{page}");
    assert!(!page.contains("alice"), "{page}");
    let (page, _) = web.browse("dave", &issue_page(issue::CRASH));
    let (now, history) = page.split_once("<h2>History").unwrap();
    assert!(now.contains("Free") && !now.contains("alice"), "{page}");
    assert!(
        history.contains("alice") && history.contains("ran out"),
        "{page}"
    );
    // Looking changes nothing.
    assert_eq!(forge.ledger().dump(), before);
}

#[test]
fn a_title_and_a_note_are_text_and_never_markup() {
    const TITLE: &str = "<script>document.title = 'gone'</script> & <b>bold</b>";
    let forge = Forge::new();
    let web = Web::before(&forge);
    let path = forge.repos().join(REPO);
    let tree = git(&path, &["hash-object", "-t", "tree", "/dev/null"]);
    let root = git(&path, &["commit-tree", "-m", TITLE, &tree]);
    let id = "5c21b7aa-0000-4000-8000-000000000001";
    git(&path, &["update-ref", &format!("refs/issues/{id}"), &root]);
    forge
        .client("alice")
        .ok("git claim 5c21b7aa --ttl 1h --note <b>note</b>");
    for page in [repo(), issue_page(id)] {
        let (dom, console) = web.browse("dave", &page);
        assert_eq!(console, "");
        assert!(!dom.contains("<script") && !dom.contains("<b>"), "{dom}");
        assert!(dom.contains("&lt;b&gt;note&lt;/b&gt;"), "{dom}");
        assert!(dom.contains("&lt;b&gt;bold&lt;/b&gt;"), "{dom}");
        assert!(!dom.contains("<title>gone"), "{dom}");
    }
}

#[test]
fn who_may_not_see_it_gets_what_is_not_there() {
    let forge = Forge::new();
    forge.add_repo("acme/secret.git");
    git(
        &forge.repos().join("acme/secret.git"),
        &["config", "claim.read", "carol"],
    );
    git(
        &forge.repos().join("acme/secret.git"),
        &["config", "claim.write", ""],
    );
    let web = Web::before(&forge);
    forge.client("alice").ok("git claim ae1c");
    for viewer in [Some("alice"), Some("dave")] {
        assert_eq!(web.get(viewer, &repo()).status, 200);
    }
    for (viewer, there) in [
        (Some("eve"), repo()),
        (Some("eve"), issue_page(issue::CRASH)),
        (None, repo()),
        (Some("dave"), "/acme/secret.git".to_owned()),
        (Some("dave"), "/acme/secret.git/1".to_owned()),
    ] {
        let hidden = web.get(viewer, &there);
        assert_eq!(hidden.status, 404, "{viewer:?} {there}");
        let unknown = web.get(viewer, "/acme/nowhere.git");
        assert_eq!(hidden.timeless(), unknown.timeless(), "{viewer:?} {there}");
    }
    let dave = Some("dave");
    for path in [
        "",
        "/",
        "/acme",
        "/acme/app",
        "/acme/app.git/unknown-issue",
        "/acme/app.git/-x",
        "/acme/app.git/ae1c/x",
        "/acme/%2e%2e/app.git",
        "/..%2f..%2fetc/passwd.git",
    ] {
        assert_eq!(web.get(dave, path).status, 404, "{path}");
    }
}

#[test]
fn a_repository_for_everybody_is_for_nobody_in_particular_too() {
    let forge = Forge::with_settings("[claim]\n\tread = *\n\twrite = alice\n");
    let web = Web::before(&forge);
    forge.client("alice").ok("git claim ae1c");
    let page = web.get(None, &repo());
    assert_eq!(page.status, 200);
    assert!(page.body.contains("alice"), "{}", page.body);
    // A name comes from the web server alone.
    let forged = web.request("GET", None, &repo(), "Remote-User: alice\r\n");
    assert_eq!(forged.status, 200);
    assert!(!forged.body.contains(">you<"), "{}", forged.body);
    let alice = web.get(Some("alice"), &repo());
    assert!(alice.body.contains(">you<"), "{}", alice.body);
    let session = web.get(None, &issue_page(issue::CRASH));
    assert!(session.body.contains("until it is released"));
}

#[test]
fn what_the_tracker_cannot_list_is_said_and_what_is_held_is_shown() {
    let forge = Forge::new();
    forge.add_repo("plain.git");
    let web = Web::before(&forge);
    let alice = forge.client("alice");
    alice.verb("acquire plain.git 42 --ttl 600").success();
    let dave = Some("dave");
    let page = web.get(dave, "/plain.git").body;
    let (held, free) = held_and_free(&page);
    assert!(held.contains("alice") && held.contains("./plain.git/42"));
    assert!(free.contains("can't be listed"), "{page}");
    // A tracker that is out of order hides no claim.
    git(
        &forge.repos().join("plain.git"),
        &["config", "claim.tracker", "jira"],
    );
    for path in ["/plain.git", "/plain.git/42"] {
        let answer = web.get(dave, path);
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.body.contains("alice"), "{}", answer.body);
    }
    assert_eq!(web.get(dave, "/plain.git/43").status, 503);
}

#[test]
fn of_many_issues_the_first_are_shown_in_the_trackers_order_and_all_claims() {
    let forge = Forge::new();
    let path = forge.add_repo("many.git");
    // beads takes the most urgent first: here the one with the highest number.
    let lines: String = (0..501)
        .map(|n| {
            let priority = 501 - n;
            format!("{{\"id\":\"bd-{n}\",\"title\":\"T{n}.\",\"status\":\"open\",\"priority\":{priority}}}\n")
        })
        .collect();
    let file = forge.dir().join("issues.jsonl");
    fs::write(&file, lines).unwrap();
    git(&path, &["read-tree", "--empty"]);
    let blob = git(&path, &["hash-object", "-w", file.to_str().unwrap()]);
    let entry = format!("100644,{blob},.beads/issues.jsonl");
    git(&path, &["update-index", "--add", "--cacheinfo", &entry]);
    let tree = git(&path, &["write-tree"]);
    let commit = git(&path, &["commit-tree", "-m", "beads", &tree]);
    git(&path, &["update-ref", "refs/heads/main", &commit]);
    let web = Web::before(&forge);
    // The one that does not fit any more.
    forge
        .client("alice")
        .verb("acquire many.git bd-0 --ttl 600")
        .success();
    let page = web.get(Some("dave"), "/many.git").body;
    let (held, free) = held_and_free(&page);
    assert!(held.contains(">T0.<") && held.contains("alice"), "{held}");
    assert_eq!(free.matches("<li").count(), 500);
    let at = |title: &str| free.find(title).unwrap();
    assert!(at(">T500.<") < at(">T499.<") && at(">T499.<") < at(">T1.<"));
    assert!(free.contains("There are more open issues than these."));
}

#[test]
fn pages_come_locked_down_and_can_only_be_looked_at() {
    let forge = Forge::new();
    let web = Web::before(&forge);
    let dave = Some("dave");
    for path in [repo(), "/nowhere.git".to_owned()] {
        let answer = web.get(dave, &path);
        for wanted in [
            "Content-Security-Policy: default-src 'none'; style-src 'sha256-",
            "X-Content-Type-Options: nosniff",
            "Referrer-Policy: no-referrer",
            "Cache-Control: no-store",
            "Content-Type: text/html; charset=utf-8",
        ] {
            let found = answer.headers.iter().any(|line| line.starts_with(wanted));
            assert!(found, "{wanted} is missing: {:?}", answer.headers);
        }
        assert_eq!(web.request("HEAD", dave, &path, "").body, "");
    }
    let refused = web.request("POST", dave, &repo(), "Content-Length: 0\r\n");
    assert_eq!(refused.status, 405);
    // A claim outlives its issue, and is still shown.
    forge.client("alice").ok("git claim ae1c");
    let issue_ref = format!("refs/issues/{}", issue::CRASH);
    close_issue(&forge.repos().join(REPO), &issue_ref);
    let page = web.get(dave, &repo()).body;
    let (held, _) = held_and_free(&page);
    assert!(
        held.contains("alice") && held.contains(">closed<"),
        "{page}"
    );
    // What is out of order is no page that says too much.
    forge.configure("[claim]\n\tsurprise = 1\n");
    let broken = web.get(dave, &repo());
    assert_eq!(broken.status, 503);
    assert!(!broken.body.contains("surprise"), "{}", broken.body);
}

#[test]
fn without_a_web_server_it_says_what_it_is_for() {
    let mut server = assert_cmd::Command::new(programs::server());
    let assert = server.env_clear().arg("cgi").assert().code(1).stdout("");
    let said = crate::support::client::stderr(&assert);
    assert!(said.contains("no web server asks"), "{said}");
}
