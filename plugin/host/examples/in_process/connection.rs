//! One SSH connection: who is asking, by which key, and for what.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use git_claim_server::openssh::asks_for_claims;
use git_claim_server::principal::Principal;
use git_claim_server::ssh_key::Fingerprint;
use russh::keys::{HashAlg, PublicKey};
use russh::server::{
    Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey,
};
use russh::{Channel, ChannelId};

use crate::{Forge, claims, git};

/// A client, from its first byte to its last.
pub struct Connection {
    forge: Arc<Forge>,
    peer: IpAddr,
    /// Set once a signature was checked.
    who: Option<Principal>,
    /// Opened, and nothing asked for yet.
    channels: HashMap<ChannelId, Channel<Msg>>,
}

impl Connection {
    pub fn new(forge: Arc<Forge>, peer: IpAddr) -> Connection {
        Connection {
            forge,
            peer,
            who: None,
            channels: HashMap::new(),
        }
    }

    /// Whose key this is.
    fn owner(&self, key: &PublicKey) -> Option<Principal> {
        let key: Fingerprint = key.fingerprint(HashAlg::Sha256).to_string().parse().ok()?;
        let name = self.forge.settings.user_of(&key)?.clone();
        let profile = key.to_string();
        Some(Principal { name, profile })
    }
}

impl Handler for Connection {
    type Error = anyhow::Error;

    /// A client may offer any key that it has read somewhere: this tells it
    /// which one to sign with, and nothing more.
    async fn auth_publickey_offered(
        &mut self,
        _user: &str,
        offer: PublicKeyOffer<'_>,
    ) -> anyhow::Result<Auth> {
        Ok(match self.owner(offer.public_key) {
            Some(_) => Auth::Accept,
            None => Auth::reject(),
        })
    }

    /// The signature is good. The user that the client typed is no proof of
    /// anything, and on a forge always `git`.
    async fn auth_publickey(
        &mut self,
        _user: &str,
        key: VerifiedPublicKey<'_>,
    ) -> anyhow::Result<Auth> {
        self.who = self.owner(key.public_key);
        Ok(match self.who {
            Some(_) => Auth::Accept,
            None => Auth::reject(),
        })
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> anyhow::Result<()> {
        self.channels.insert(channel.id(), channel);
        reply.accept().await;
        Ok(())
    }

    async fn exec_request(
        &mut self,
        id: ChannelId,
        command: &[u8],
        session: &mut Session,
    ) -> anyhow::Result<()> {
        let (Some(channel), Some(who)) = (self.channels.remove(&id), self.who.clone()) else {
            return Ok(session.channel_failure(id)?);
        };
        session.channel_success(id)?;
        let (forge, command, peer) = (Arc::clone(&self.forge), command.to_vec(), self.peer);
        // Not here: the connection has other channels to serve meanwhile.
        tokio::spawn(async move {
            // A client that has gone is told nothing.
            let _ = if asks_for_claims(&command) {
                claims::serve(forge, who, peer, command, channel).await
            } else {
                git::serve(&forge, &who, &command, channel).await
            };
        });
        Ok(())
    }

    /// A client waits for an answer, so what is not served is refused.
    async fn shell_request(&mut self, id: ChannelId, session: &mut Session) -> anyhow::Result<()> {
        self.channels.remove(&id);
        Ok(session.channel_failure(id)?)
    }

    async fn subsystem_request(
        &mut self,
        id: ChannelId,
        _name: &str,
        session: &mut Session,
    ) -> anyhow::Result<()> {
        self.channels.remove(&id);
        Ok(session.channel_failure(id)?)
    }
}
