//! The page: who holds what, for a web browser. A web server runs this once per
//! request, by the rules of CGI (RFC 3875).
//!
//! ```text
//! address    which page is meant, and how pages link to each other
//! response   status and headers, the same care for every page
//! page       a repository, an issue, a refusal, as HTML
//! moment     times as people and programs read them
//! ```
//!
//! Everything shown comes through the plugin's `query`, for the viewer whom the
//! web server names. Nothing here writes.

mod address;
mod moment;
mod page;
mod response;

use std::ffi::OsString;
use std::path::Path;

use git_claim_api::REQUEST_DEADLINE_MS;
use git_claim_api::exit::Exit;
use git_claim_api::query::{self, ClaimHistoryReply, ClaimParams, ClaimsParams, ClaimsReply};
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::address::Address;
use self::response::{Method, Response};
use crate::abi::{CallError, Question};
use crate::forgejo::settings::ForgejoSettings;
use crate::host::Host;
use crate::log::{Level, log};
use crate::principal::Name;
use crate::report::Failure;
use crate::request;
use crate::settings::Settings;
use crate::site::Site;
use crate::watchdog::Watchdog;

/// Answers the web server's request and gives the exit code.
///
/// # Errors
/// No web server asks.
pub fn run(config: Option<&Path>) -> Result<u8, Failure> {
    let method = variable("REQUEST_METHOD").ok_or_else(|| {
        Failure::refused("no web server asks: REQUEST_METHOD is not set")
            .hint("`git-claim-server cgi` is a CGI program; the README has a web server's settings")
    })?;
    let watchdog = Watchdog::start().map_err(Failure::not_now)?;
    let method = Method::from_name(&method);
    let response = match method {
        Method::Other => Response::not_allowed(),
        Method::Get | Method::Head => look(config),
    };
    if watchdog.settle() {
        // Nobody is left to tell when the web server has gone.
        let _ = response.write(method, &mut std::io::stdout().lock());
    }
    Ok(Exit::Done.code())
}

/// The page that is asked for, or why there is none.
fn look(config: Option<&Path>) -> Response {
    let path = variable("PATH_INFO").unwrap_or_default();
    let Some(address) = Address::parse(&path) else {
        return Response::not_found();
    };
    let viewer = viewer(variable("REMOTE_USER"));
    match show(config, &address, viewer.as_ref()) {
        Ok(html) => Response::page(html),
        Err(NoPage::NotFound) => Response::not_found(),
        Err(NoPage::Failed(failure)) => {
            log(Level::Error, &failure.error);
            // The web server's own log takes what a CGI program says here.
            failure.print();
            Response::not_now()
        }
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).and_then(|value: OsString| value.into_string().ok())
}

/// Whom the web server has authenticated. Who has no name that settings could
/// list is nobody.
fn viewer(user: Option<String>) -> Option<Name> {
    user?.parse().ok()
}

/// Why there is no page.
enum NoPage {
    /// No such thing, or not the viewer's to know.
    NotFound,
    Failed(Failure),
}

impl From<Failure> for NoPage {
    fn from(failure: Failure) -> NoPage {
        NoPage::Failed(failure)
    }
}

fn show(
    config: Option<&Path>,
    address: &Address<'_>,
    viewer: Option<&Name>,
) -> Result<String, NoPage> {
    let settings = Settings::load(config).map_err(Failure::not_now)?;
    // Its repositories and rights are not this file's to name, and a page that
    // shows nothing would read as if nobody held anything.
    if settings.forgejo != ForgejoSettings::default() {
        return Err(Failure::not_now("the page can't be served for [claimForgejo] yet").into());
    }
    let site = Site::for_viewer(&settings, viewer)?;
    let user = viewer.map_or("", Name::as_str);
    let repo = address.repo.to_owned();
    Ok(match address.issue {
        None => {
            let params = ClaimsParams { repo };
            let reply: ClaimsReply = ask(&settings, &site, user, query::CLAIMS, &params)?;
            page::repository(address, &reply)
        }
        Some(issue) => {
            let issue = issue.to_owned();
            let params = ClaimParams { repo, issue };
            let reply: ClaimHistoryReply = ask(&settings, &site, user, query::CLAIM, &params)?;
            page::issue(address, &reply)
        }
    })
}

/// Asks the plugin.
fn ask<T: DeserializeOwned>(
    settings: &Settings,
    host: &dyn Host,
    user: &str,
    name: &str,
    params: &impl Serialize,
) -> Result<T, NoPage> {
    let plugin = request::load(settings)?;
    let ledger = settings.ledger().map_err(Failure::not_now)?;
    let instance = request::open(&plugin, settings, ledger, host.has_tracker())?;
    let params = serde_json::to_string(params).map_err(Failure::not_now)?;
    let question = Question {
        name,
        params: &params,
        user,
        deadline_ms: REQUEST_DEADLINE_MS,
    };
    let answer = match instance.query(&question, host) {
        Ok(answer) => answer,
        Err(CallError::NotFound | CallError::Denied) => return Err(NoPage::NotFound),
        Err(error) => return Err(Failure::not_now(error).into()),
    };
    serde_json::from_str(&answer)
        .map_err(|error| Failure::not_now(format!("the plugin's answer: {error}")).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_proper_name_is_nobody() {
        for (user, name) in [
            (None, None),
            (Some(""), None),
            (Some("*"), None),
            (Some("@devs"), None),
            (Some("a b"), None),
            (Some("alice"), Some("alice")),
            (Some("alice@example.org"), Some("alice@example.org")),
        ] {
            let viewer = viewer(user.map(str::to_owned));
            assert_eq!(viewer.as_ref().map(Name::as_str), name, "{user:?}");
        }
    }
}
