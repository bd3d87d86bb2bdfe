//! Keys: the secret text that a caller presents, and the digest that is kept of it.
//!
//! Floor 0. Invariant: nothing here shows a secret or a digest but [`Secret::expose`].

use std::fmt;
use std::hash::{Hash, Hasher};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

/// What the text of a made key starts with, so that scanners find one that has leaked.
pub const PREFIX: &str = "qk_";

/// The longest text that is looked up as a key, in bytes; a longer one is an unknown key.
pub const MAX_KEY: usize = 1024;

/// The text of a key, on its way to its owner. It is shown once: nothing keeps it.
///
/// `Debug` and `Display` show that there is one, and nothing of it.
pub struct Secret(String);

impl Secret {
    /// The secret of 256 random bits: [`PREFIX`] and their base64url, 46 bytes in all.
    pub(crate) fn of(random: [u8; 32]) -> Secret {
        Secret(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random)))
    }

    /// The text, to be handed to the key's owner.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// The SHA-256 of a key. Two are compared in a time that does not depend on where they differ.
#[derive(Clone, Copy)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of a key's text.
    pub fn of(key: &str) -> Digest {
        Digest(Sha256::digest(key.as_bytes()).into())
    }

    /// The digest of these bytes.
    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Digest {
        Digest(bytes)
    }
}

impl PartialEq for Digest {
    fn eq(&self, other: &Digest) -> bool {
        let differ = self.0.iter().zip(&other.0).fold(0, |differ, (a, b)| differ | (a ^ b));
        // Kept from being turned into a comparison that ends early.
        std::hint::black_box(differ) == 0
    }
}

impl Eq for Digest {}

impl Hash for Digest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0);
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(hidden)")
    }
}

/// The key in a value of the `Authorization` header, or the key itself where it stands alone.
pub(crate) fn presented(bearer: &str) -> &str {
    let bearer = bearer.trim();
    match bearer.split_at_checked("Bearer ".len()) {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("Bearer ") => key.trim(),
        _ => bearer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_its_form_and_is_shown_by_expose_alone() {
        let secret = Secret::of([0xff; 32]);
        assert_eq!(secret.expose(), "qk___________________________________________8");
        assert_eq!((secret.expose().len(), format!("{secret:?} {secret}").contains('8')), (46, false));
        assert!(!format!("{:?}", Digest::of("abc")).contains("ba"));
    }

    #[test]
    fn digests_differ_where_any_bit_does() {
        // FIPS 180-2, the digest of "abc", begins with ba 78.
        let abc = Digest::of("abc");
        assert_eq!(abc.0[..2], [0xba, 0x78]);
        for bit in 0..256 {
            let mut other = abc;
            other.0[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(abc, other);
        }
        assert_eq!(abc, Digest::from_bytes(abc.0));
    }

    #[test]
    fn a_key_is_found_with_its_scheme_and_without() {
        for (bearer, key) in [
            ("Bearer qk_a", "qk_a"),
            ("bEARER   qk_a ", "qk_a"),
            (" qk_a\r\n", "qk_a"),
            ("Basic qk_a", "Basic qk_a"),
            ("Bearerqk_a", "Bearerqk_a"),
            ("Bearer", "Bearer"),
            ("", ""),
            ("é", "é"),
        ] {
            assert_eq!(presented(bearer), key, "{bearer:?}");
        }
    }
}
