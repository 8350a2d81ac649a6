//! What a principal may do in one repository.

use serde::{Deserialize, Serialize};

use crate::abi::{GCLAIM_ADMIN, GCLAIM_READ, GCLAIM_WRITE};

/// Rights, each with those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// See claims.
    Read,
    /// Take, renew and release one's own.
    Write,
    /// End another principal's claim.
    Admin,
}

impl Access {
    /// The number in the ABI.
    pub const fn to_abi(self) -> u32 {
        match self {
            Access::Read => GCLAIM_READ,
            Access::Write => GCLAIM_WRITE,
            Access::Admin => GCLAIM_ADMIN,
        }
    }

    /// The right behind a number of the ABI.
    pub const fn from_abi(number: u32) -> Option<Access> {
        match number {
            GCLAIM_READ => Some(Access::Read),
            GCLAIM_WRITE => Some(Access::Write),
            GCLAIM_ADMIN => Some(Access::Admin),
            _ => None,
        }
    }

    /// The name in replies.
    pub const fn name(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Write => "write",
            Access::Admin => "admin",
        }
    }
}
