//! What is asked of the forge over HTTP on this machine: its internal API, as
//! its own `serv` does, and the public one for issues.

use std::ffi::OsString;
use std::fmt;
use std::time::{Duration, Instant};

use git_claim_api::access::Access;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use ureq::Agent;

use super::principal;
use super::settings::{ForgejoSettings, LocalUrl, Token};
use crate::host::Unreadable;
use crate::log::{Level, log};
use crate::principal::Principal;
use crate::report::Failure;

/// How long all questions of one request may take together: less than the
/// request itself has.
const PATIENCE: Duration = Duration::from_secs(8);

/// The longest answer that is read, in bytes. An issue's text is in it.
const MOST: u64 = 4 * 1024 * 1024;

/// The forge's number for an SSH key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyId(i64);

impl KeyId {
    /// The key in the forge's own command, `… serv key-7`.
    pub fn of_command(command: &[OsString]) -> Option<KeyId> {
        let [.., serv, key] = command else {
            return None;
        };
        let digits = key.to_str()?.strip_prefix("key-")?;
        let id = number(digits)?;
        (serv == "serv").then_some(KeyId(id))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number as the forge counts: from 1, without zeros in front.
pub fn number(digits: &str) -> Option<i64> {
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    digits.parse().ok().filter(|_| plain)
}

/// `owner/name`, in the characters that the forge allows for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoName {
    owner: String,
    name: String,
}

impl RepoName {
    /// From the path in a git URL.
    pub fn parse(path: &str) -> Option<RepoName> {
        let path = path
            .strip_prefix("/~/")
            .or(path.strip_prefix("~/"))
            .unwrap_or(path);
        let (owner, name) = path.trim_matches('/').split_once('/')?;
        let name = name.strip_suffix(".git").unwrap_or(name);
        RepoName::new(owner, name)
    }

    /// `None` for a wiki too, which has no issues, and which the forge would
    /// make when asked for it.
    fn new(owner: &str, name: &str) -> Option<RepoName> {
        let plain = |part: &str| {
            !matches!(part, "" | "." | "..")
                && part.len() <= 100
                && part
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        };
        let is_wiki = name.to_ascii_lowercase().ends_with(".wiki");
        (plain(owner) && plain(name) && !is_wiki).then(|| RepoName {
            owner: owner.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Where the forge keeps it below its folder of repositories.
    pub fn folder(&self) -> String {
        format!("{self}.git").to_ascii_lowercase()
    }
}

impl fmt::Display for RepoName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

/// What the forge says of a key in a repository.
#[derive(Debug, Clone)]
pub struct Served {
    pub principal: Principal,
    /// The forge's login whose eyes see the issues; none behind a deploy key.
    user: Option<String>,
    pub repo_id: i64,
    /// As the forge spells it now.
    pub name: RepoName,
}

impl Served {
    /// Whether both speak of the same user and the same repository.
    pub fn is_as(&self, other: &Served) -> bool {
        self.repo_id == other.repo_id && self.principal == other.principal
    }
}

/// The forge's API, for one request.
#[derive(Debug)]
pub struct Api<'a> {
    url: &'a LocalUrl,
    internal: Token,
    public: Option<Token>,
    key: KeyId,
    agent: Agent,
    end: Instant,
}

/// Where the forge is, and what opens it.
struct Secrets<'a> {
    url: &'a LocalUrl,
    internal: Token,
    public: Option<Token>,
}

impl<'a> Secrets<'a> {
    fn read(settings: &'a ForgejoSettings) -> Result<Self, Failure> {
        let unset = |key: &str| Failure::set_up_wrongly(format!("{key} is not set"));
        let url = settings
            .url
            .as_ref()
            .ok_or_else(|| unset("claimForgejo.url"))?;
        let internal = settings
            .internal_token
            .as_deref()
            .ok_or_else(|| unset("claimForgejo.internalTokenFile"))?;
        Ok(Secrets {
            url,
            internal: Token::read(internal)?,
            public: settings.api_token.as_deref().map(Token::read).transpose()?,
        })
    }
}

/// An answer: the status, and the body.
struct Answer {
    status: u16,
    body: Vec<u8>,
}

impl<'a> Api<'a> {
    /// The API of `settings`, for the owner of `key`; nothing is asked yet.
    ///
    /// # Errors
    /// A setting is missing, or a token cannot be read.
    pub fn new(settings: &'a ForgejoSettings, key: KeyId) -> Result<Self, Failure> {
        let Secrets {
            url,
            internal,
            public,
        } = Secrets::read(settings)?;
        let agent = Agent::config_builder()
            // Else a client that may set `http_proxy` would get the tokens.
            .proxy(None)
            .max_redirects(0)
            .http_status_as_error(false)
            .user_agent(concat!("git-claim-server/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        Ok(Api {
            url,
            internal,
            public,
            key,
            agent,
            end: Instant::now() + PATIENCE,
        })
    }

    /// Makes sure that the settings are whole and the tokens can be read; gives
    /// the forge's URL.
    ///
    /// # Errors
    /// A setting is missing, or a token cannot be read.
    pub fn secrets(settings: &ForgejoSettings) -> Result<&LocalUrl, Failure> {
        Ok(Secrets::read(settings)?.url)
    }

    /// Whether issues are the forge's.
    pub fn has_issues(&self) -> bool {
        self.public.is_some()
    }

    /// Whose the key is, and the repository, if its owner has `access` there.
    ///
    /// # Errors
    /// The forge could not say.
    pub fn served(&self, repo: &RepoName, access: Access) -> Result<Option<Served>, Failure> {
        let mode = match access {
            Access::Read => 1,
            Access::Write => 2,
            Access::Admin => 3,
        };
        // The verb: with any other one the forge may make a repository that is
        // missing, or look for less than the mode says.
        let path = format!(
            "api/internal/serv/command/{}/{}/{}?mode={mode}&verb=git-upload-pack",
            self.key, repo.owner, repo.name
        );
        match self.internal::<ServResults>(&path)? {
            Some(results) => match results.check(self.key) {
                Ok(served) => Ok(Some(served)),
                Err(why) => Err(cannot_say(&path, why)),
            },
            None => Ok(None),
        }
    }

    /// Whose the key is.
    ///
    /// # Errors
    /// The forge could not say, or the key is a repository's and nobody's.
    pub fn owner(&self) -> Result<Principal, Failure> {
        let path = format!("api/internal/serv/none/{}", self.key);
        let owner = self
            .internal::<KeyAndOwner>(&path)?
            .and_then(|answer| answer.user)
            .ok_or_else(|| {
                Failure::refused("the forge does not know whose key this is")
                    .hint("name a repository: a deploy key is known there alone")
            })?;
        principal(&owner.name, self.key).ok_or_else(|| cannot_say(&path, "bad name"))
    }

    /// Asks the internal API. `None`: the user may not, or there is no such
    /// thing; these are told apart nowhere.
    fn internal<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Failure> {
        let bearer = format!("Bearer {}", self.internal.secret());
        let headers = [
            // Forgejo looks for the first, Gitea for the second.
            ("Authorization", bearer.as_str()),
            ("X-Gitea-Internal-Auth", bearer.as_str()),
        ];
        let answer = self
            .get(path, &headers)
            .map_err(|why| cannot_say(path, why))?;
        match answer.status {
            200 => match serde_json::from_slice(&answer.body) {
                Ok(answer) => Ok(Some(answer)),
                Err(error) => Err(cannot_say(path, error)),
            },
            401 | 403 | 404 if is_denial(&answer.body) => Ok(None),
            status => Err(cannot_say(path, format!("status {status}"))),
        }
    }

    /// One issue as the plugin takes it; `None`: there is none with this number
    /// that the user may see.
    ///
    /// # Errors
    /// The forge could not say.
    pub fn issue(&self, served: &Served, typed: &str) -> Result<Option<String>, Unreadable> {
        let (Some(token), Some(number)) = (&self.public, number(typed)) else {
            return Ok(None);
        };
        let path = format!(
            "api/v1/repos/{}/{}/issues/{number}",
            served.name.owner, served.name.name
        );
        let token = format!("token {}", token.secret());
        let mut headers = vec![("Authorization", token.as_str())];
        if let Some(user) = &served.user {
            headers.push(("Sudo", user));
        }
        let unreadable = |why: &dyn fmt::Display| {
            log(Level::Error, &format!("forge: {path}: {why}"));
            Unreadable
        };
        let answer = self
            .get(&path, &headers)
            .map_err(|error| unreadable(&error))?;
        match answer.status {
            200 => match serde_json::from_slice::<Issue>(&answer.body) {
                Ok(issue) => issue
                    .for_plugin(number, served.repo_id)
                    .map_err(|why| unreadable(&why)),
                Err(error) => Err(unreadable(&error)),
            },
            404 => Ok(None),
            status => Err(unreadable(&format_args!("status {status}"))),
        }
    }

    fn get(&self, path: &str, headers: &[(&str, &str)]) -> Result<Answer, ureq::Error> {
        let left = self.end.saturating_duration_since(Instant::now());
        let mut request = self
            .agent
            .get(format!("{}{path}", self.url))
            .header("Accept", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut response = request
            .config()
            // Zero would mean no limit.
            .timeout_global(Some(left.max(Duration::from_millis(1))))
            .build()
            .call()?;
        Ok(Answer {
            status: response.status().as_u16(),
            body: response
                .body_mut()
                .with_config()
                .limit(MOST)
                .read_to_vec()?,
        })
    }
}

/// What a client reads when the forge gives no answer that can be used; the log
/// has the reason.
fn cannot_say(path: &str, why: impl fmt::Display) -> Failure {
    log(Level::Error, &format!("forge: {path}: {why}"));
    Failure::not_now("the forge could not say what you may do here")
        .hint("try again; the server's log has the reason")
}

/// Whether a refusal is the forge's word about the user, and not about our
/// token or the path: those come as plain text.
fn is_denial(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Denial {
        user_msg: Option<String>,
        err: Option<String>,
    }
    serde_json::from_slice::<Denial>(body)
        .is_ok_and(|denial| denial.user_msg.is_some() || denial.err.is_some())
}

/// The forge's `ServCommandResults`, as far as it matters.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ServResults {
    is_wiki: bool,
    #[serde(rename = "KeyID")]
    key_id: i64,
    #[serde(rename = "DeployKeyID")]
    deploy_key_id: i64,
    user_name: String,
    owner_name: String,
    repo_name: String,
    #[serde(rename = "RepoID")]
    repo_id: i64,
}

impl ServResults {
    fn check(self, asked: KeyId) -> Result<Served, &'static str> {
        if self.key_id != asked.0 {
            return Err("it speaks of another key");
        }
        if self.is_wiki {
            return Err("it speaks of a wiki");
        }
        if self.repo_id <= 0 || self.deploy_key_id < 0 {
            return Err("an id is none");
        }
        // Behind a deploy key the forge gives the owner's name.
        let user = (self.deploy_key_id == 0).then_some(self.user_name);
        let name = match &user {
            Some(user) => user.clone(),
            None => format!("deploy-key:{}", self.deploy_key_id),
        };
        // The name of one must not pass for the other.
        if user.as_deref().is_some_and(|user| !is_login(user)) {
            return Err("a user's name is none");
        }
        Ok(Served {
            principal: principal(&name, asked).ok_or("a user's name is none")?,
            user,
            repo_id: self.repo_id,
            name: RepoName::new(&self.owner_name, &self.repo_name)
                .ok_or("the repository's name is none")?,
        })
    }
}

/// Whether the forge would let somebody be called so.
pub fn is_login(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

#[derive(Debug, Deserialize)]
struct KeyAndOwner {
    user: Option<Owner>,
}

#[derive(Debug, Deserialize)]
struct Owner {
    #[serde(rename = "Name")]
    name: String,
}

/// An issue in the public API, as far as it matters.
#[derive(Debug, Deserialize)]
struct Issue {
    number: i64,
    state: String,
    title: String,
    pull_request: Option<serde::de::IgnoredAny>,
    repository: Option<IssueRepo>,
}

#[derive(Debug, Deserialize)]
struct IssueRepo {
    id: i64,
}

impl Issue {
    /// The issue as `resolve_issue` of the ABI gives it.
    fn for_plugin(self, asked: i64, repo_id: i64) -> Result<Option<String>, &'static str> {
        if self.number != asked {
            return Err("it speaks of another issue");
        }
        if self.repository.is_some_and(|repo| repo.id != repo_id) {
            return Err("it speaks of another repository");
        }
        if !matches!(self.state.as_str(), "open" | "closed") {
            return Err("the issue's state is none");
        }
        if self.pull_request.is_some() {
            return Ok(None);
        }
        let issue = serde_json::json!({
            "id": asked.to_string(),
            "state": self.state,
            "title": self.title,
        });
        Ok(Some(issue.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_the_last_word_of_the_forges_own_command() {
        for (command, key) in [
            ("/usr/bin/forgejo --config=/etc/app.ini serv key-7", Some(7)),
            ("forgejo serv key-1", Some(1)),
            ("forgejo serv key-0", None),
            ("forgejo serv key-07", None),
            ("forgejo serv key--7", None),
            ("forgejo serv key-+7", None),
            ("forgejo serv key-", None),
            ("forgejo serv key-7 x", None),
            ("forgejo hook key-7", None),
            ("forgejo serv key-99999999999999999999", None),
            ("key-7", None),
            ("", None),
        ] {
            let words: Vec<OsString> = command.split(' ').map(OsString::from).collect();
            assert_eq!(KeyId::of_command(&words), key.map(KeyId), "{command}");
        }
    }

    #[test]
    fn every_spelling_of_a_repository_and_nothing_else() {
        for path in [
            "acme/app",
            "acme/app.git",
            "/acme/app.git",
            "~/acme/app",
            "/~/acme/app.git/",
        ] {
            let name = RepoName::parse(path).unwrap();
            assert_eq!(name.to_string(), "acme/app", "{path}");
        }
        assert_eq!(
            RepoName::parse("Acme/App").unwrap().folder(),
            "acme/app.git"
        );
        for path in [
            "app",
            "acme/",
            "/acme",
            "acme/app/x",
            "acme/../app",
            "../app",
            "acme/..",
            "acme/app?x",
            "acme/app%2f",
            "acme/app#x",
            "acme/my app",
            "acme/app.wiki",
            "acme/app.WIKI.git",
            "ünï/app",
            "",
        ] {
            assert_eq!(RepoName::parse(path), None, "{path}");
        }
    }

    fn results(change: &str) -> Result<Served, &'static str> {
        let mut results = serde_json::json!({
            "IsWiki": false, "DeployKeyID": 0, "KeyID": 7, "KeyName": "laptop",
            "UserName": "alice", "UserEmail": "", "UserID": 3,
            "OwnerName": "acme", "RepoName": "app", "RepoID": 12,
        });
        let change: serde_json::Value = serde_json::from_str(change).unwrap();
        for (key, value) in change.as_object().unwrap() {
            results[key] = value.clone();
        }
        let results: ServResults = serde_json::from_value(results).unwrap();
        results.check(KeyId(7))
    }

    #[test]
    fn the_principal_is_the_user_or_the_deploy_key() {
        let user = results("{}").unwrap();
        assert_eq!(user.principal.name.as_str(), "alice");
        assert_eq!(user.principal.profile, "forgejo-key:7");
        assert_eq!(user.user.as_deref(), Some("alice"));
        let deploy = results(r#"{"DeployKeyID": 5, "UserName": "acme"}"#).unwrap();
        assert_eq!(deploy.principal.name.as_str(), "deploy-key:5");
        assert_eq!(deploy.user, None);
    }

    #[test]
    fn an_answer_that_cannot_be_true_is_none() {
        for change in [
            r#"{"KeyID": 8}"#,
            r#"{"IsWiki": true}"#,
            r#"{"RepoID": 0}"#,
            r#"{"RepoID": -1}"#,
            r#"{"DeployKeyID": -5}"#,
            r#"{"UserName": ""}"#,
            r#"{"UserName": "@admins"}"#,
            r#"{"UserName": "a b"}"#,
            r#"{"UserName": "deploy-key:5"}"#,
            r#"{"UserName": "a\r\nX: y"}"#,
            r#"{"OwnerName": ".."}"#,
            r#"{"RepoName": "a/b"}"#,
        ] {
            assert!(results(change).is_err(), "{change}");
        }
    }

    fn issue(text: &str) -> Result<Option<String>, &'static str> {
        let issue: Issue = serde_json::from_str(text).unwrap();
        issue.for_plugin(4, 12)
    }

    #[test]
    fn an_issue_is_taken_if_it_is_the_one_that_was_asked_for() {
        let open =
            r#"{"number":4,"state":"open","title":"t","pull_request":null,"repository":{"id":12}}"#;
        let expected = serde_json::json!({"id": "4", "state": "open", "title": "t"});
        let got: serde_json::Value = serde_json::from_str(&issue(open).unwrap().unwrap()).unwrap();
        assert_eq!(got, expected);
        let pull = r#"{"number":4,"state":"open","title":"t","pull_request":{"merged":false}}"#;
        assert_eq!(issue(pull), Ok(None));
        for lie in [
            r#"{"number":5,"state":"open","title":"t"}"#,
            r#"{"number":4,"state":"ajar","title":"t"}"#,
            r#"{"number":4,"state":"open","title":"t","repository":{"id":13}}"#,
        ] {
            assert!(issue(lie).is_err(), "{lie}");
        }
    }

    #[test]
    fn a_refusal_of_our_own_token_is_no_word_about_the_user() {
        for (body, denial) in [
            (r#"{"err":"x","user_msg":"y"}"#, true),
            (r#"{"user_msg":"y"}"#, true),
            (r#"{"err":"x"}"#, true),
            (r#"{"message":"x"}"#, false),
            ("Forbidden\n", false),
            ("", false),
            ("[]", false),
        ] {
            assert_eq!(is_denial(body.as_bytes()), denial, "{body}");
        }
    }
}
