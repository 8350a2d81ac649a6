//! `whoami`: who the server takes the caller for, and what holds here.

use git_claim_api::PROTOCOL;
use git_claim_api::access::Access;
use git_claim_api::exit::Exit;
use git_claim_api::reply::WhoamiReply;
use git_claim_api::time::rfc3339;
use git_claim_api::verb::RepoArg;

use crate::server::{Answer, Call, Failure};

pub fn run(call: &Call<'_>, repo: Option<&RepoArg>) -> Result<Answer, Failure> {
    let asker = call.asker();
    let mut reply = WhoamiReply {
        status: "whoami".to_owned(),
        name: asker.name.to_owned(),
        key: asker.key.map(str::to_owned),
        access: None,
        repo: None,
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        tracker: None,
        max_ttl: call.settings().max_ttl,
        default_ttl: call.settings().default_ttl,
        push_options: None,
        now: rfc3339(call.now.floor()).unwrap_or_default(),
    };
    if let Some(repo) = repo {
        let admitted = call.admit(repo, Access::Read)?;
        let access = [Access::Admin, Access::Write]
            .into_iter()
            .find(|access| admitted.may(*access))
            .unwrap_or(Access::Read);
        let ttls = admitted.ttls()?;
        reply.access = Some(access.name().to_owned());
        reply.tracker = Some(admitted.tracker()?.name().to_owned());
        reply.max_ttl = ttls.longest.seconds();
        reply.default_ttl = ttls.default.seconds();
        if let Some(repository) = admitted.repository() {
            reply.push_options = Some(repository.takes_push_options()?);
        }
        reply.repo = Some(admitted.repo);
    }
    Answer::new(Exit::Done, &reply)
}
