//! `{secret:NAME}` in the value of a header stands for a secret, so that the record does not hold it.

const BEGIN: &str = "{secret:";

/// Returns `value` with the result of `secret` in place of each placeholder.
///
/// # Errors
///
/// The error of `secret`, or a clause about a placeholder that has no end.
pub(crate) fn fill(
    value: &str,
    mut secret: impl FnMut(&str) -> Result<String, String>,
) -> Result<String, String> {
    let mut filled = String::with_capacity(value.len());
    let mut rest = value;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (name, after) = after
            .split_once('}')
            .ok_or_else(|| format!("has `{BEGIN}` without `}}` after the name of the secret"))?;
        filled.push_str(before);
        filled.push_str(&secret(name)?);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_placeholder_is_filled() {
        let secret = |name: &str| match name {
            // A value is not read again.
            "token" => Ok("{secret:token}".to_owned()),
            other => Err(format!("names {other}")),
        };
        for (value, expected) in [
            ("plain {x}", "plain {x}"),
            ("Bearer {secret:token}", "Bearer {secret:token}"),
            (
                "{secret:token}:{secret:token}.",
                "{secret:token}:{secret:token}.",
            ),
        ] {
            assert_eq!(fill(value, secret).as_deref(), Ok(expected));
        }
        for (value, expected) in [
            ("{secret:other}", "names other"),
            (
                "a {secret:token",
                "has `{secret:` without `}` after the name of the secret",
            ),
        ] {
            assert_eq!(fill(value, secret), Err(expected.to_owned()));
        }
    }
}
