//! How arguments and answers travel.

use leptos::server_fn::{Bytes, ContentType, Decodes, Encodes, Format, FormatType, codec::Post};
use serde::{
    Serialize,
    de::{DeserializeOwned, Error},
};

/// JSON that is read as text, as the values in a page are. The usual encoding reads bytes, and every type's reader would be
/// in the browser's program twice.
pub struct Text;

/// A JSON body, posted and answered.
pub type Json = Post<Text>;

impl ContentType for Text {
    const CONTENT_TYPE: &'static str = "application/json";
}

impl FormatType for Text {
    const FORMAT_TYPE: Format = Format::Text;
}

impl<T: Serialize> Encodes<T> for Text {
    type Error = serde_json::Error;

    fn encode(value: &T) -> Result<Bytes, Self::Error> {
        serde_json::to_string(value).map(Bytes::from)
    }
}

impl<T: DeserializeOwned> Decodes<T> for Text {
    type Error = serde_json::Error;

    fn decode(bytes: Bytes) -> Result<T, Self::Error> {
        let text = str::from_utf8(&bytes).map_err(Error::custom)?;
        serde_json::from_str(text)
    }
}
