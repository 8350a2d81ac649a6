//! Random ids.

use std::fmt::Write as _;

/// 128 random bits in 32 hex digits: a lease's id, a ledger's id.
pub fn id() -> String {
    let mut bytes = [0; 16];
    if getrandom::fill(&mut bytes).is_err() {
        // Without the kernel's randomness (early boot, a broken sandbox) an id
        // must still be unique on this server; it is no secret.
        let nanos = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos());
        let unique = nanos ^ (u128::from(std::process::id()) << 96);
        bytes = unique.to_be_bytes();
    }
    let mut out = String::with_capacity(32);
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn ids_differ() {
        let (a, b) = (super::id(), super::id());
        assert_eq!(a.len(), 32);
        assert_ne!(a, b);
    }
}
