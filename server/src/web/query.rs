//! Reads the parameters of an address strictly: every refusal names the parameter, what was given and what is allowed.

use std::borrow::Cow;

use axum::extract::FromRequestParts;
use engine::job::FieldError;
use http::request::Parts;
use serde::{
    Deserializer,
    de::{
        DeserializeOwned, DeserializeSeed, Error, IntoDeserializer, MapAccess, Visitor,
        value::StrDeserializer,
    },
    forward_to_deserialize_any,
};

use super::{extract::shorten, limits, problem::Problem};

/// Characters of what was given that come back in a refusal; an address is read in one line.
const GIVEN_CHARS: usize = 80;

/// Parameters of a call. No text among them may be longer than [`limits::QUERY_CHARS`].
pub trait Parameters: DeserializeOwned {
    /// Those that are whole numbers, with the least and the greatest value.
    const NUMBERS: &'static [(&'static str, u64, u64)] = &[];
}

/// The parameters of a request.
#[derive(Debug)]
pub struct ApiQuery<T>(pub T);

impl<S: Send + Sync, T: Parameters> FromRequestParts<S> for ApiQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        read(parts.uri.query().unwrap_or_default()).map(Self).map_err(Problem::invalid)
    }
}

/// Reads the part of an address after `?`.
///
/// # Errors
/// All numbers and texts that break their limits; else the first parameter that is not understood.
fn read<T: Parameters>(query: &str) -> Result<T, Vec<FieldError>> {
    let pairs: Vec<_> = form_urlencoded::parse(query.as_bytes()).collect();
    let wrong: Vec<_> = pairs.iter().filter_map(|(name, value)| beyond::<T>(name, value)).collect();
    if !wrong.is_empty() {
        return Err(wrong);
    }
    T::deserialize(Query(pairs)).map_err(|why| {
        vec![FieldError::new(shorten(&why.name.unwrap_or_else(|| "query".to_owned()), GIVEN_CHARS), why.text)]
    })
}

/// What is wrong with a number outside its range or a long text.
fn beyond<T: Parameters>(name: &str, value: &str) -> Option<FieldError> {
    if value.chars().count() > limits::QUERY_CHARS {
        let rule = format!("is longer than {} characters", limits::QUERY_CHARS);
        return Some(FieldError::new(shorten(name, GIVEN_CHARS), rule));
    }
    let (_, least, greatest) = T::NUMBERS.iter().find(|(number, ..)| *number == name)?;
    let fits = value.parse().is_ok_and(|number: u64| (*least..=*greatest).contains(&number));
    (!fits)
        .then(|| FieldError::new(name, refusal(value, &format!("a whole number from {least} to {greatest}"))))
}

fn refusal(given: &str, allowed: &str) -> String {
    if given.is_empty() {
        format!("is empty. Use {allowed}.")
    } else {
        format!("{} is not allowed. Use {allowed}.", shorten(given, GIVEN_CHARS))
    }
}

/// Why a parameter was not understood.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Misfit {
    name: Option<String>,
    text: String,
}

impl Error for Misfit {
    fn custom<T: std::fmt::Display>(text: T) -> Self {
        Self { name: None, text: text.to_string() }
    }

    fn unknown_variant(given: &str, known: &'static [&'static str]) -> Self {
        Self::custom(refusal(given, &one_of(known)))
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        let text = format!("is no parameter of this call. Use {}.", one_of(known));
        Self { name: Some(name.to_owned()), text }
    }

    fn duplicate_field(name: &'static str) -> Self {
        Self { name: Some(name.to_owned()), text: "is given twice. Use it once.".to_owned() }
    }

    fn missing_field(name: &'static str) -> Self {
        Self { name: Some(name.to_owned()), text: "is missing".to_owned() }
    }
}

fn one_of(known: &[&str]) -> String {
    match known {
        [] => "none".to_owned(),
        [one] => (*one).to_owned(),
        [others @ .., last] => format!("{} or {last}", others.join(", ")),
    }
}

/// The pairs of a query, as the fields of a struct.
struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'de> Deserializer<'de> for Query<'_> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_map(Pairs { left: self.0.into_iter(), value: None })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct Pairs<'a> {
    left: std::vec::IntoIter<(Cow<'a, str>, Cow<'a, str>)>,
    value: Option<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'de> MapAccess<'de> for Pairs<'_> {
    type Error = Misfit;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Misfit> {
        self.value = self.left.next();
        let Some((name, _)) = &self.value else { return Ok(None) };
        let name: StrDeserializer<'_, Misfit> = (**name).into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Misfit> {
        let (name, value) = self.value.take().ok_or_else(|| Misfit::custom("a value without its name"))?;
        seed.deserialize(Given(&value)).map_err(|why| Misfit { name: Some(name.into_owned()), ..why })
    }
}

/// The value of a parameter.
struct Given<'a>(&'a str);

impl<'de> Deserializer<'de> for Given<'_> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_str(self.0)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.0 {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            other => Err(Misfit::custom(refusal(other, "true or false"))),
        }
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.0.parse() {
            Ok(number) => visitor.visit_u64(number),
            Err(_) => Err(Misfit::custom(refusal(self.0, "a whole number"))),
        }
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        visitor.visit_enum(self.0.into_deserializer())
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use engine::{ids::ReplicaName, job::JobKind};
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Wanted {
        launch: Option<u32>,
        from: Option<u64>,
        force: bool,
        kind: Option<JobKind>,
        replica: Option<ReplicaName>,
        q: Option<String>,
    }

    impl Parameters for Wanted {
        const NUMBERS: &'static [(&'static str, u64, u64)] =
            &[("launch", 0, u32::MAX as u64), ("from", 1, u64::MAX)];
    }

    #[test]
    fn what_is_understood_is_read() {
        let read = read::<Wanted>(
            "launch=3&from=18446744073709551615&force=true&kind=pytorchjob&replica=worker-0&q=a+b%21",
        )
        .unwrap();
        let want = Wanted {
            launch: Some(3),
            from: Some(u64::MAX),
            force: true,
            kind: Some(JobKind::PyTorchJob),
            replica: Some(ReplicaName::new("worker-0").unwrap()),
            q: Some("a b!".into()),
        };
        assert_eq!(read, want);
    }

    #[test]
    fn a_refusal_names_the_parameter_what_was_given_and_what_is_allowed() {
        let long = format!("q={}", "a".repeat(201));
        for (query, field, message) in [
            ("launch=-1", "launch", "-1 is not allowed. Use a whole number from 0 to 4294967295."),
            ("launch=", "launch", "is empty. Use a whole number from 0 to 4294967295."),
            (
                "launch=99999999999999",
                "launch",
                "99999999999999 is not allowed. Use a whole number from 0 to 4294967295.",
            ),
            ("from=0", "from", "0 is not allowed. Use a whole number from 1 to 18446744073709551615."),
            ("force=maybe", "force", "maybe is not allowed. Use true or false."),
            ("kind=mpijob", "kind", "mpijob is not allowed. Use pytorchjob or rayjob."),
            ("page=x", "page", "is no parameter of this call. Use launch, from, force, kind, replica or q."),
            ("force=true&force=true", "force", "is given twice. Use it once."),
            (long.as_str(), "q", "is longer than 200 characters"),
        ] {
            let errors = read::<Wanted>(query).unwrap_err();
            let seen: Vec<_> =
                errors.iter().map(|error| (error.field.as_str(), error.message.as_str())).collect();
            assert_eq!(seen, [(field, message)], "{query}");
        }
        let errors = read::<Wanted>("replica=A%20B").unwrap_err();
        assert_eq!(errors[0].field, "replica");
        assert_eq!(read::<Wanted>("launch=x&from=0").unwrap_err().len(), 2, "all numbers at once");
    }
}
