//! Who asks: by a key that the gate knows, or by a token whose issuer the operator trusts.
//!
//! Invariant: a token is believed only if it is verified; one that is not is no key either.

use axum::response::Response;
use quota_core::{Gate, Principal};

use crate::answer::{Fault, Manner};
#[cfg(feature = "jwt")]
use crate::jwt::{JwtConfig, verify};

/// Whose tokens are believed; by default nobody's.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    #[cfg(feature = "jwt")]
    jwt: Option<JwtConfig>,
}

impl Identity {
    /// Believes the JWTs of an issuer for an audience. A key in PEM is the issuer's public one, of RSA for RS256 or of
    /// the curve P-256 for ES256; any other text is the secret of HS256, without the white space at its end.
    ///
    /// # Errors
    /// The key is none of these, issuer or audience is empty, or the gateway is built without the feature `jwt`.
    #[cfg(feature = "jwt")]
    pub fn jwt(key: &str, issuer: &str, audience: &str) -> Result<Identity, String> {
        let config = match key.contains("-----BEGIN") {
            true => JwtConfig::rs256(key, issuer, audience).or_else(|_| JwtConfig::es256(key, issuer, audience)),
            false => JwtConfig::hs256(key.trim_end().as_bytes(), issuer, audience),
        };
        Ok(Identity { jwt: Some(config.map_err(|why| why.to_string())?) })
    }

    /// Not without the feature `jwt`.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(feature = "jwt"))]
    pub fn jwt(_: &str, _: &str, _: &str) -> Result<Identity, String> {
        Err("this gateway is built without the feature `jwt`".into())
    }

    /// The principal of a bearer, with or without `Bearer ` before it.
    pub(crate) fn principal(&self, gate: &Gate, manner: Manner, bearer: &str) -> Result<Principal, Box<Response>> {
        let found = match self.claims(bearer) {
            Some(claims) => {
                let claims = claims.map_err(|fault| Box::new(manner.fault(&fault)))?;
                gate.principal_from_claims(&claims)
            }
            None => gate.authenticate(bearer),
        };
        found.map_err(|refusal| Box::new(manner.refusal(&refusal)))
    }

    /// The claims of a bearer that is a token: of three parts with dots between them. No key looks so.
    #[cfg(feature = "jwt")]
    fn claims(&self, bearer: &str) -> Option<Result<serde_json::Value, Fault>> {
        let bearer = bearer.trim();
        let token = match bearer.split_at_checked("Bearer ".len()) {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("Bearer ") => token.trim(),
            _ => bearer,
        };
        let config = self.jwt.as_ref().filter(|_| token.bytes().filter(|byte| *byte == b'.').count() == 2)?;
        let told = |why| {
            Fault::new(401, "token_invalid", format!("The token is not accepted: {why}."))
                .header("x-should-retry", "false")
        };
        Some(verify(token, config).map_err(told))
    }

    #[cfg(not(feature = "jwt"))]
    fn claims(&self, _: &str) -> Option<Result<serde_json::Value, Fault>> {
        None
    }
}
