//! JSON Web Tokens: verified here, so that their claims may name a principal.
//!
//! Invariant: one algorithm a configuration, chosen by the operator and never by the JWT; what comes out has a good
//! signature, an end that has not passed, and the issuer and audience that are expected. No error shows the JWT, the
//! key or a claim's value.

use std::fmt;

use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use serde_json::Value;

/// The longest JWT that is read, in bytes.
pub const MAX_JWT: usize = 16 << 10;

/// How far the clocks of issuer and gateway may be apart, in seconds.
pub const LEEWAY: u64 = 30;

/// The shortest secret of HS256, in bytes: as long as its digest (RFC 7518, 3.2).
const MIN_SECRET: usize = 32;

/// The length of a PKCS #1 public key with a modulus of 2048 bits and the exponent 3: the shortest that RS256 takes
/// (RFC 7518, 3.3).
const MIN_RSA: usize = 268;

/// Whose JWTs are good, and how they are signed. `Debug` shows no key.
#[derive(Debug, Clone)]
pub struct JwtConfig {
    key: DecodingKey,
    validation: Validation,
}

impl JwtConfig {
    /// JWTs signed with HS256 and a shared secret of at least 32 bytes.
    ///
    /// # Errors
    /// The secret is shorter; the issuer or the audience is empty.
    pub fn hs256(secret: &[u8], issuer: &str, audience: &str) -> Result<JwtConfig, JwtError> {
        if secret.len() < MIN_SECRET {
            let found = secret.len();
            return Err(JwtError::Config(format!("the secret has {found} bytes; at least {MIN_SECRET} are allowed")));
        }
        JwtConfig::new(Algorithm::HS256, DecodingKey::from_secret(secret), issuer, audience)
    }

    /// JWTs signed with RS256, by the issuer's public key as PEM.
    ///
    /// # Errors
    /// The PEM is no public RSA key of at least 2048 bits; the issuer or the audience is empty.
    pub fn rs256(pem: &str, issuer: &str, audience: &str) -> Result<JwtConfig, JwtError> {
        let key = public(pem, DecodingKey::from_rsa_pem)?;
        if key.try_get_as_bytes().map_or(0, <[u8]>::len) < MIN_RSA {
            return Err(JwtError::Config("the RSA key is shorter than 2048 bits".into()));
        }
        JwtConfig::new(Algorithm::RS256, Ok(key), issuer, audience)
    }

    /// JWTs signed with ES256, by the issuer's public key (curve P-256) as PEM.
    ///
    /// # Errors
    /// The PEM is no public key of a curve; the issuer or the audience is empty.
    pub fn es256(pem: &str, issuer: &str, audience: &str) -> Result<JwtConfig, JwtError> {
        let key = public(pem, DecodingKey::from_ec_pem);
        JwtConfig::new(Algorithm::ES256, Ok(key?), issuer, audience)
    }

    fn new(
        algorithm: Algorithm,
        key: Result<DecodingKey, Error>,
        issuer: &str,
        audience: &str,
    ) -> Result<JwtConfig, JwtError> {
        for (what, value) in [("issuer", issuer), ("audience", audience)] {
            if value.trim().is_empty() {
                return Err(JwtError::Config(format!("the {what} is empty")));
            }
        }
        let mut validation = Validation::new(algorithm);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.set_issuer(&[issuer]);
        validation.set_audience(&[audience]);
        let key = key.map_err(|_| JwtError::Config("the key can't be read".into()))?;
        Ok(JwtConfig { key, validation })
    }
}

/// Reads a public key; a private one has no business here.
fn public(pem: &str, read: fn(&[u8]) -> Result<DecodingKey, Error>) -> Result<DecodingKey, JwtError> {
    let no = || JwtError::Config("the PEM is no public key of the algorithm's kind".into());
    if pem.contains("PRIVATE KEY") {
        return Err(no());
    }
    read(pem.as_bytes()).map_err(|_| no())
}

/// Why a JWT is not believed, or a configuration is none.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum JwtError {
    /// The configuration: what is wrong with it.
    Config(String),
    /// More than [`MAX_JWT`] bytes.
    TooLong,
    /// Not a signed JWT of three parts.
    Malformed,
    /// Signed with another algorithm than the configured one.
    Algorithm,
    /// The signature is not the issuer's.
    Signature,
    /// Its end has passed.
    Expired,
    /// Its beginning has not come.
    NotYet,
    /// A claim (`exp`, `nbf`, `iss`, `aud`) that is missing, of another type, or not what is expected.
    Claim(String),
}

impl fmt::Display for JwtError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JwtError::Config(what) => f.write_str(what),
            JwtError::TooLong => write!(f, "the JWT is longer than {MAX_JWT} bytes"),
            JwtError::Malformed => f.write_str("not a signed JWT of three parts"),
            JwtError::Algorithm => f.write_str("signed with another algorithm than the one that is expected"),
            JwtError::Signature => f.write_str("the signature is not the issuer's"),
            JwtError::Expired => f.write_str("the JWT has expired"),
            JwtError::NotYet => f.write_str("the JWT is not valid yet"),
            JwtError::Claim(name) => write!(f, "the claim `{name}` is missing or not what is expected"),
        }
    }
}

impl std::error::Error for JwtError {}

/// The claims of a JWT that is believed, for `Gate::principal_from_claims`.
///
/// Cost: one verification of a signature; linear in the JWT.
///
/// # Errors
/// As [`JwtError`] says; nothing of the claims is given before everything has been checked.
pub fn verify(jwt: &str, config: &JwtConfig) -> Result<Value, JwtError> {
    if jwt.len() > MAX_JWT {
        return Err(JwtError::TooLong);
    }
    let data = decode::<Value>(jwt, &config.key, &config.validation).map_err(|error| refused(&error))?;
    // One issuer signs a JWT: the crate would take a list that holds the expected one.
    if !data.claims["iss"].is_string() {
        return Err(JwtError::Claim("iss".into()));
    }
    Ok(data.claims)
}

fn refused(error: &Error) -> JwtError {
    match error.kind() {
        ErrorKind::InvalidAlgorithm | ErrorKind::UnsupportedAlgorithm => JwtError::Algorithm,
        ErrorKind::InvalidSignature => JwtError::Signature,
        ErrorKind::ExpiredSignature => JwtError::Expired,
        ErrorKind::ImmatureSignature => JwtError::NotYet,
        ErrorKind::InvalidIssuer => JwtError::Claim("iss".into()),
        ErrorKind::InvalidAudience => JwtError::Claim("aud".into()),
        ErrorKind::MissingRequiredClaim(name) | ErrorKind::InvalidClaimFormat(name) => JwtError::Claim(name.clone()),
        _ => JwtError::Malformed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jsonwebtoken::{EncodingKey, Header, encode};
    use serde_json::json;

    const ISSUER: &str = "https://id.example";
    const SECRET: &[u8] = b"an invented secret of 32 bytes..";
    /// 2100-01-01.
    const FAR: u64 = 4_102_444_800;

    // Keys made for these tests, whose private halves were thrown away; each has signed the claims of `claims()`.
    const RSA: &str = "-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAuELKIe7e2VbvWl7phQN7
sIzOYLU6vHcrQZKf+vL766W7AK83awABuYHrO9cQoRrtpl52/sHT4YrxGMJjOrzW
42+y4b2iLyGPSA4Mj9rPU4UmYt1kjRctoe9uvhFsCqtsN444JRpoShTg9+/FnXCw
uOLGeI+lf+jZXQnuVq4DPvnk2MOMt7vJ0pWw2Ws32oT9Cg7B+4rVuUSDqOQ4KjpO
voVInkM9HHqrn364GLeri6Wp1kywB8LHQ6Dzu4OAhR0RzsVfuK/OH1wZt9DAt6Ve
szJ3kFIMdQn1Exrr9ulMQfP2IiZ2252PR0nOKv7Frnphu0BqSprZZl/aySFS8Wdo
5QIDAQAB
-----END PUBLIC KEY-----
";
    const SMALL_RSA: &str = "-----BEGIN PUBLIC KEY-----
MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDdNmz8LWrW643Sb5piTXmLMzJp
B50UIb4VNRs1Wbu9ZttZntzyusP384cHL0CC3l5q2/lNoPmMe+cmqrzzgXQejIJD
eL3+vEjO5RnzCT7bdF5An7KUD9JQdCPiTcys37VQvRHqnfsRm4MojTojsi1t69ei
su3aOqZPvpQvWOcB4wIDAQAB
-----END PUBLIC KEY-----
";
    const EC: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEIL/rexREpL2fGOfuVKOIrn4O/jGz
VFLJdM7Y13GUVE80L/bS+PCNhuGwJfzTRBwHKcp+aADfRgXqpMcF7iPmoQ==
-----END PUBLIC KEY-----
";
    const BY_RSA: &str = concat!(
        "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUiLCJhdWQiOiJnYXRld",
        "2F5IiwiZXhwIjo0MTAyNDQ0ODAwLCJvcmciOiJhY21lIiwic3ViIjoidTEifQ.XDdbe7OC_hwvB6mAMJit7uBUXkt6",
        "SOP2kA2vZt10AVCGVvf6DRiP93BJOZalhqjvUGV5rK87rHLxhYUiY0-_T_dRpNDEcJcpc7NcP0EFaWkWLYKeJ2oKdk",
        "FP2EFrVwxXlO4ATuxPBxoYAmKob0ngBrC_mHaGIDWianGPNEkQL_7EMAm5VaCQLgKkhIMIufUvYQQtmagfRPvgbZ0h",
        "a1aupIkk92kqgB2N1G1apLxp1yar_c8NwSfchrJ8k1pQCavnn-bZ09htNWrDsj2CsZ-hQ7rMoBg5dlUxz1KQidZOic",
        "oHHRzaHqjWIMu6FQkJaijfUASDnu5NSGn0_1oyou2Slw",
    );
    const BY_EC: &str = concat!(
        "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUiLCJhdWQiOiJnYXRld",
        "2F5IiwiZXhwIjo0MTAyNDQ0ODAwLCJvcmciOiJhY21lIiwic3ViIjoidTEifQ.YVSVnOVGu6rt2y89jPxikrGDvSZi",
        "_xkwWlsIRlGFW5zY5v-Yglyon0PlA2pYjZCrg2BQCd1j2BxLNWz1kaia1Q",
    );
    /// The claims with `{"alg":"none"}` and no signature.
    const BY_NOBODY: &str = concat!(
        "eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUiLCJhdWQiOiJnYXRld2F5IiwiZXhwIjo0MT",
        "AyNDQ0ODAwLCJvcmciOiJhY21lIiwic3ViIjoidTEifQ.",
    );

    fn claims() -> Value {
        json!({ "iss": ISSUER, "aud": "gateway", "exp": FAR, "org": "acme", "sub": "u1" })
    }

    fn signed(claims: &Value, algorithm: Algorithm, secret: &[u8]) -> String {
        encode(&Header::new(algorithm), claims, &EncodingKey::from_secret(secret).unwrap()).unwrap()
    }

    fn hs() -> JwtConfig {
        JwtConfig::hs256(SECRET, ISSUER, "gateway").unwrap()
    }

    #[test]
    fn each_algorithm_gives_the_claims() {
        let by_secret = signed(&claims(), Algorithm::HS256, SECRET);
        for (jwt, config) in [
            (by_secret.as_str(), hs()),
            (BY_RSA, JwtConfig::rs256(RSA, ISSUER, "gateway").unwrap()),
            (BY_EC, JwtConfig::es256(EC, ISSUER, "gateway").unwrap()),
        ] {
            assert_eq!(verify(jwt, &config), Ok(claims()));
            let (body, signature) = jwt.rsplit_once('.').unwrap();
            let other = if signature.starts_with('A') { 'B' } else { 'A' };
            assert_eq!(verify(&format!("{body}.{other}{}", &signature[1..]), &config), Err(JwtError::Signature));
            let (_, payload) = body.split_once('.').unwrap();
            let (head, _) = jwt.split_once('.').unwrap();
            let changed = format!("{head}.{}.{signature}", payload.replacen('o', "p", 1));
            assert_eq!(verify(&changed, &config), Err(JwtError::Signature));
        }
    }

    #[test]
    fn the_jwt_does_not_choose_its_algorithm() {
        let rsa = JwtConfig::rs256(RSA, ISSUER, "gateway").unwrap();
        // Signed with the public key as if it were a shared secret.
        assert_eq!(verify(&signed(&claims(), Algorithm::HS256, RSA.as_bytes()), &rsa), Err(JwtError::Algorithm));
        assert_eq!(verify(BY_EC, &rsa), Err(JwtError::Algorithm));
        assert_eq!(verify(BY_RSA, &hs()), Err(JwtError::Algorithm));
        assert_eq!(verify(&signed(&claims(), Algorithm::HS512, SECRET), &hs()), Err(JwtError::Algorithm));
        for config in [rsa, hs(), JwtConfig::es256(EC, ISSUER, "gateway").unwrap()] {
            assert_eq!(verify(BY_NOBODY, &config), Err(JwtError::Malformed));
        }
    }

    #[test]
    fn end_beginning_issuer_and_audience_are_checked() {
        let now = jsonwebtoken::get_current_timestamp();
        let claim = |name: &str| JwtError::Claim(name.into());
        for (name, value, want) in [
            ("exp", json!(now - LEEWAY - 5), Some(JwtError::Expired)),
            ("exp", json!(now + 60), None),
            ("exp", json!("2100-01-01"), Some(claim("exp"))),
            ("exp", Value::Null, Some(claim("exp"))),
            ("nbf", json!(now + LEEWAY + 60), Some(JwtError::NotYet)),
            ("nbf", json!(now), None),
            ("iss", json!("https://evil.example"), Some(claim("iss"))),
            ("iss", json!([ISSUER, "https://evil.example"]), Some(claim("iss"))),
            ("iss", Value::Null, Some(claim("iss"))),
            ("aud", json!("other"), Some(claim("aud"))),
            ("aud", json!(["other", "gateway"]), None),
            ("aud", json!([]), Some(claim("aud"))),
            ("aud", json!(7), Some(claim("aud"))),
            ("aud", Value::Null, Some(claim("aud"))),
        ] {
            let mut claims = claims();
            claims[name] = value.clone();
            let found = verify(&signed(&claims, Algorithm::HS256, SECRET), &hs());
            assert_eq!(found.clone().err(), want, "{name} {value}: {found:?}");
            let mut without = claims;
            if want == Some(claim(name)) {
                without.as_object_mut().unwrap().remove(name);
                assert_eq!(verify(&signed(&without, Algorithm::HS256, SECRET), &hs()), Err(claim(name)), "no {name}");
            }
        }
        let list = json!([FAR, null, null, ISSUER, "gateway"]);
        assert!(verify(&signed(&list, Algorithm::HS256, SECRET), &hs()).is_err(), "claims are an object");
    }

    #[test]
    fn what_is_no_jwt_is_told_without_showing_it() {
        for jwt in ["", ".", "..", "...", "a.b.c", "qk_a_key", "é.é.é", &"a".repeat(MAX_JWT)] {
            let error = verify(jwt, &hs()).unwrap_err();
            assert_eq!(error, JwtError::Malformed, "{jwt:.20}");
        }
        assert_eq!(verify(&"a".repeat(MAX_JWT + 1), &hs()), Err(JwtError::TooLong));
    }

    #[test]
    fn a_weak_or_wrong_key_is_no_configuration() {
        let private = "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n";
        for config in [
            JwtConfig::hs256(&SECRET[1..], ISSUER, "gateway"),
            JwtConfig::hs256(SECRET, "", "gateway"),
            JwtConfig::hs256(SECRET, ISSUER, " "),
            JwtConfig::rs256(SMALL_RSA, ISSUER, "gateway"),
            JwtConfig::rs256(EC, ISSUER, "gateway"),
            JwtConfig::rs256(private, ISSUER, "gateway"),
            JwtConfig::rs256("", ISSUER, "gateway"),
            JwtConfig::es256(RSA, ISSUER, "gateway"),
        ] {
            assert!(matches!(config, Err(JwtError::Config(_))), "{config:?}");
        }
        let shown = format!("{:?}", hs());
        assert!(!shown.contains("invented") && !shown.contains("97, 110, 32"), "{shown}");
    }
}
