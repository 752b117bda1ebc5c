//! Reads bodies and paths strictly: what cannot be understood is named with its field, nothing is guessed.

use axum::{
    RequestExt,
    body::Bytes,
    extract::{FromRequest, FromRequestParts, Path, Request},
};
use engine::job::FieldError;
use http::{HeaderMap, StatusCode, header, request::Parts};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{limits, problem::Problem};

/// Characters of a field's name and of what is wrong with it; both may hold what was sent.
const MISFIT_CHARS: usize = 300;

/// A JSON body. An empty one is an error; see [`OptionalJson`].
#[derive(Debug)]
pub struct ApiJson<T>(pub T);

/// A JSON body that may be left out, which means the default.
#[derive(Debug)]
pub struct OptionalJson<T>(pub T);

/// Parts of the path. A text that is no id names nothing, so it is not found.
#[derive(Debug)]
pub struct ApiPath<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Serialize> FromRequest<S> for ApiJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let is_json = is_json(request.headers());
        let body = body(request).await?;
        if !is_json {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "not-json",
                "The body is not declared as JSON",
                "Send `Content-Type: application/json`.",
            ));
        }
        read_json(&body, "").map(Self)
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Serialize + Default> FromRequest<S> for OptionalJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        // A body without its type is refused below, so that a mistake is not taken for "nothing sent".
        let nothing = request.headers().get(header::CONTENT_TYPE).is_none()
            && axum::body::HttpBody::is_end_stream(request.body());
        if nothing {
            return Ok(Self(T::default()));
        }
        ApiJson::from_request(request, state).await.map(|ApiJson(value)| Self(value))
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for ApiPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(value)) => Ok(Self(value)),
            Err(why) => {
                let text = why.body_text();
                Err(Problem::not_found(text.strip_prefix("Invalid URL: ").unwrap_or(&text)))
            }
        }
    }
}

/// Reads a value from JSON text; the field of an error begins with `prefix`.
///
/// # Errors
/// 400 where the text is no JSON, 422 with the field where a value does not fit.
pub fn read_json<T: DeserializeOwned + Serialize>(text: &[u8], prefix: &str) -> Result<T, Problem> {
    let mut source = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut source).map_err(|why| {
        let path = why.path().to_string();
        let inner = why.into_inner();
        if inner.is_data() { misfit(&format!("{prefix}{path}"), &inner.to_string()) } else { no_json(&inner) }
    })?;
    source.end().map_err(|why| no_json(&why))?;
    let given = serde_json::from_slice(text).map_err(|why| no_json(&why))?;
    refuse_lists(&given, &value, prefix)?;
    Ok(value)
}

/// The same for a value that was parsed already.
///
/// # Errors
/// 422 with the field where a value does not fit.
pub fn read_value<T: DeserializeOwned + Serialize>(value: Value, prefix: &str) -> Result<T, Problem> {
    let read = serde_path_to_error::deserialize(&value)
        .map_err(|why| misfit(&format!("{prefix}{}", why.path()), &why.inner().to_string()))?;
    refuse_lists(&value, &read, prefix)?;
    Ok(read)
}

/// serde reads a list as the fields of a struct in their order, which nobody means to send.
fn refuse_lists<T: Serialize>(given: &Value, read: &T, prefix: &str) -> Result<(), Problem> {
    let read = serde_json::to_value(read).map_err(|why| super::sessions::failed(&why))?;
    match list_for_object(given, &read) {
        None => Ok(()),
        Some(path) => {
            let field = if path.is_empty() { ".".to_owned() } else { format!("{prefix}{path}") };
            Err(misfit(&field, "is a list; use an object with named fields"))
        }
    }
}

/// The path of a list that was read as an object.
fn list_for_object(given: &Value, read: &Value) -> Option<String> {
    match (given, read) {
        (Value::Array(_), Value::Object(_)) => Some(String::new()),
        (Value::Object(given), Value::Object(read)) => given.iter().find_map(|(key, value)| {
            let inner = list_for_object(value, read.get(key)?)?;
            Some(if inner.is_empty() { key.clone() } else { format!("{key}.{inner}") })
        }),
        _ => None,
    }
}

fn no_json(why: &serde_json::Error) -> Problem {
    Problem::malformed(format!("The body is no JSON: {why}"))
}

fn misfit(field: &str, message: &str) -> Problem {
    // serde_json adds " at line 1 column 2", which says less than the field.
    let message = message.split(" at line ").next().unwrap_or(message);
    let (field, message) =
        match message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
            Some(missing) if field == "." => (missing.to_owned(), "is missing".to_owned()),
            Some(missing) => (format!("{field}.{missing}"), "is missing".to_owned()),
            None => (if field == "." { "body".to_owned() } else { field.to_owned() }, plain(message)),
        };
    Problem::invalid(vec![FieldError::new(shorten(&field, MISFIT_CHARS), shorten(&message, MISFIT_CHARS))])
}

/// serde's words for a value that does not fit as a sentence without the names of Rust's types. What it says otherwise stays.
fn plain(message: &str) -> String {
    let Some((given, wanted)) = message.split_once(", expected ") else { return message.to_owned() };
    let wanted = wanted.strip_prefix("one of ").unwrap_or(wanted);
    if let Some(name) = given.strip_prefix("unknown field ") {
        return format!("{name} is no field here. Use {wanted}.");
    }
    if let Some(word) = given.strip_prefix("unknown variant ") {
        return format!("{word} is not allowed. Use {wanted}.");
    }
    let Some(given) = given.strip_prefix("invalid type: ").or_else(|| given.strip_prefix("invalid value: "))
    else {
        return message.to_owned();
    };
    let given = match given {
        "map" => "An object",
        "sequence" => "A list",
        other => other,
    };
    let wanted = match wanted {
        "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "an object with named fields",
        other if other.starts_with("struct ") => "an object with named fields",
        other => other,
    };
    format!("{given} is not allowed. Use {wanted}.")
}

/// What clients sent comes back in errors, but not all of it.
pub(super) fn shorten(text: &str, chars: usize) -> String {
    text.chars().take(chars).collect()
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

/// The whole body, within the router's limit.
///
/// # Errors
/// 413 beyond the limit, 400 where the connection broke.
pub async fn body(request: Request) -> Result<Bytes, Problem> {
    request.extract::<Bytes, _>().await.map_err(|why| {
        if why.status() == StatusCode::PAYLOAD_TOO_LARGE {
            Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "too-large",
                "The body is too large",
                format!("At most {} bytes are read.", limits::BODY_BYTES),
            )
        } else {
            Problem::malformed(why.body_text())
        }
    })
}

#[cfg(test)]
mod tests {
    use engine::job::JobDraft;

    use super::*;

    #[test]
    fn what_does_not_fit_is_said_without_the_names_of_types() {
        for (body, field, message) in [
            (r#"{"replicas":"2"}"#, "replicas", r#"string "2" is not allowed. Use a whole number."#),
            (r#"{"name":1}"#, "name", "integer `1` is not allowed. Use a string."),
            (r#"{"command":{}}"#, "command", "An object is not allowed. Use a list."),
            (r#"{"env":[]}"#, "env", "A list is not allowed. Use an object with named fields."),
            (
                r#"{"fault_tolerance":3}"#,
                "fault_tolerance",
                "integer `3` is not allowed. Use an object with named fields.",
            ),
            (r#"{"kind":"mpijob"}"#, "kind", "`mpijob` is not allowed. Use `pytorchjob` or `rayjob`."),
            (
                r#"{"fault_tolerance":{"auto_failover":"yes"}}"#,
                "fault_tolerance.auto_failover",
                r#"string "yes" is not allowed. Use a boolean."#,
            ),
        ] {
            let problem = read_json::<JobDraft>(body.as_bytes(), "").unwrap_err();
            let error = &problem.errors[0];
            assert_eq!((error.field.as_str(), error.message.as_str()), (field, message), "{body}");
        }
    }

    #[test]
    fn an_error_names_its_field() {
        for (body, status, field) in [
            ("{", 400, None),
            (r#"{"name":"a"} x"#, 400, None),
            ("[]", 422, Some("body")),
            (r#"{"fault_tolerance":{"policy":[true]}}"#, 422, Some("fault_tolerance.policy")),
            (r#"{"name":1}"#, 422, Some("name")),
            (r#"{"nam":"a"}"#, 422, Some("nam")),
            (r#"{"fault_tolerance":{"policy":{"typo":1}}}"#, 422, Some("fault_tolerance.policy.typo")),
            (
                r#"{"fault_tolerance":{"max_task_restarts":"2"}}"#,
                422,
                Some("fault_tolerance.max_task_restarts"),
            ),
            (r#"{"command":["a",2]}"#, 422, Some("command[1]")),
            (r#"{"kind":"mpijob"}"#, 422, Some("kind")),
        ] {
            let problem = read_json::<JobDraft>(body.as_bytes(), "").unwrap_err();
            assert_eq!(problem.status.as_u16(), status, "{body}");
            assert_eq!(problem.errors.first().map(|error| error.field.as_str()), field, "{body}");
        }
    }
}
