//! What is noted here of a server's reply. The reply is what counts: a note that
//! can't be made or removed is a warning, and changes nothing of what was
//! answered.

use std::io;

use git_claim_api::exit::Exit;
use git_claim_api::reply::ClaimReply;

use crate::answer::Reply;
use crate::bound::keep;
use crate::client::Client;
use crate::output::Output;

/// A claim is had, or goes on: its token, and the record if this worktree is
/// bound to it.
pub fn held(client: &Client, reply: &Reply, output: &Output) {
    told(client, reply, output);
    if let Err(error) = client.tokens().keep(reply) {
        output.warning(&format!(
            "{error:#}; the claim is yours all the same, and `git claim log` shows its token"
        ));
    }
    if let Err(failure) = keep::go_on(client, reply, output) {
        output.warning(&failure.message);
    }
}

/// A claim is over, or another's: this worktree forgets it.
pub fn over(client: &Client, reply: &Reply, output: &Output) {
    told(client, reply, output);
    if let Err(error) = client.tokens().forget(reply) {
        output.warning(&format!("{error:#}; the claim is released all the same"));
    }
    match keep::let_go(client, reply) {
        Ok(true) if reply.exit == Exit::Conflict => {
            output.remark("this worktree is not bound to that claim any more");
        }
        Ok(_) => {}
        Err(failure) => output.warning(&failure.message),
    }
}

/// Who has an issue, for completions.
pub fn told(client: &Client, reply: &Reply, output: &Output) {
    if let Ok(claim) = reply.read::<ClaimReply>() {
        seen(client.memory().keep(&claim), output);
    }
}

/// Something was to be kept for completions. Where it could not be, nothing is
/// lost.
pub fn seen(kept: io::Result<()>, output: &Output) {
    if let Err(error) = kept {
        output.detail(&format!("completions won't know of it: {error}"));
    }
}
