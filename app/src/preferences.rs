//! What one browser prefers, kept in cookies so that the first paint is right: no flash, no second rendering.

use leptos::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{console::Caller, format::Zone};

/// The cookie of the theme: `light`, `dark`; absent is the system's.
pub const THEME_COOKIE: &str = "holdfast_theme";
/// The cookie of the time zone: minutes east of UTC.
pub const ZONE_COOKIE: &str = "holdfast_zone";
/// The cookie that turns keyboard shortcuts `off`.
pub const SHORTCUTS_COOKIE: &str = "holdfast_shortcuts";
/// A year, in seconds.
const COOKIE_SECONDS: u32 = 31_536_000;

/// Light, dark, or as the system has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Theme {
    /// As the system has it.
    #[default]
    System,
    /// Light.
    Light,
    /// Dark.
    Dark,
}

impl Theme {
    /// All themes, as the settings offer them.
    pub const ALL: [Self; 3] = [Self::System, Self::Light, Self::Dark];

    /// As cookies and forms write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    /// The `data-theme` of the page; none leaves it to the system.
    pub const fn attribute(self) -> Option<&'static str> {
        match self {
            Self::System => None,
            Self::Light => Some("light"),
            Self::Dark => Some("dark"),
        }
    }

    fn parse(text: &str) -> Self {
        Self::ALL.into_iter().find(|theme| theme.as_str() == text).unwrap_or_default()
    }
}

/// What one browser prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preferences {
    /// Light, dark or the system's.
    pub theme: Theme,
    /// The zone that times are printed in.
    pub zone: Zone,
    /// Keyboard shortcuts work.
    pub shortcuts: bool,
}

impl Default for Preferences {
    fn default() -> Self {
        Self { theme: Theme::System, zone: Zone::UTC, shortcuts: true }
    }
}

impl Preferences {
    /// From a `Cookie` header; what is missing or unknown is the default.
    pub fn of_cookies(header: &str) -> Self {
        let mut preferences = Self::default();
        for (name, value) in header.split(';').filter_map(|pair| pair.trim().split_once('=')) {
            preferences.set(name, value);
        }
        preferences
    }

    /// From the fields of the settings form (`theme`, `zone`, `shortcuts`) on top of what was. A form that holds
    /// `profile` is the whole one, where an absent checkbox means off.
    pub fn of_form<'a>(self, fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut preferences = self;
        let (mut whole, mut shortcuts) = (false, false);
        for (name, value) in fields {
            match name {
                "theme" => preferences.set(THEME_COOKIE, value),
                "zone" => preferences.set(ZONE_COOKIE, value),
                "shortcuts" => shortcuts = true,
                "profile" => whole = true,
                _ => {}
            }
        }
        if whole {
            preferences.shortcuts = shortcuts;
        }
        preferences
    }

    fn set(&mut self, cookie: &str, value: &str) {
        match cookie {
            THEME_COOKIE => self.theme = Theme::parse(value),
            ZONE_COOKIE => self.zone = value.parse().ok().and_then(Zone::of_minutes).unwrap_or_default(),
            SHORTCUTS_COOKIE => self.shortcuts = value != "off",
            _ => {}
        }
    }

    /// The `Set-Cookie` values that keep them for a year. They hold no secret, so scripts may read them.
    pub fn set_cookies(self) -> [String; 3] {
        let cookie =
            |name, value: &str| format!("{name}={value}; Path=/; Max-Age={COOKIE_SECONDS}; SameSite=Lax");
        [
            cookie(THEME_COOKIE, self.theme.as_str()),
            cookie(ZONE_COOKIE, &self.zone.minutes().to_string()),
            cookie(SHORTCUTS_COOKIE, if self.shortcuts { "on" } else { "off" }),
        ]
    }
}

/// What frames every page: who is signed in and what the browser prefers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Who is signed in; none on the login page.
    pub caller: Option<Caller>,
    /// What the browser prefers.
    pub preferences: Preferences,
    /// How this browser reached the server, `http://127.0.0.1:3000`, for commands to copy; none if it did not say.
    pub origin: Option<String>,
}

impl Frame {
    /// Whether calls have to show who makes them: not on a server without accounts.
    pub fn signs_in(&self) -> bool {
        self.caller.as_ref().is_some_and(|caller| !caller.single_user)
    }

    /// The frame of the request that is being answered; the default outside one.
    #[cfg(feature = "ssr")]
    pub fn of_request() -> Self {
        let parts = use_context::<http::request::Parts>();
        let header = |name: &str| -> Option<String> {
            Some(parts.as_ref()?.headers.get(name)?.to_str().ok()?.to_owned())
        };
        Self {
            caller: use_context::<crate::server_fns::Scope>().map(|scope| scope.caller),
            preferences: header("cookie")
                .map_or_else(Preferences::default, |text| Preferences::of_cookies(&text)),
            origin: header("host").filter(|host| is_host(host)).map(|host| {
                let scheme = header("x-forwarded-proto").filter(|scheme| scheme == "https");
                format!("{}://{host}", scheme.as_deref().unwrap_or("http"))
            }),
        }
    }

    /// In the browser the frame comes with the page; this is its default.
    #[cfg(not(feature = "ssr"))]
    pub fn of_request() -> Self {
        Self::default()
    }
}

/// A host and port of plain characters: it goes into a command that people copy to a shell.
#[cfg(any(feature = "ssr", test))]
fn is_host(text: &str) -> bool {
    text.len() <= 260 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.:[]".contains(&b))
}

/// The frame of this page.
pub fn use_frame() -> Frame {
    use_context::<Frame>().unwrap_or_default()
}

/// The zone that this page prints times in.
pub fn use_zone() -> Zone {
    use_context::<Frame>().map_or(Zone::UTC, |frame| frame.preferences.zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_survive_the_round_trip() {
        let wanted =
            Preferences { theme: Theme::Dark, zone: Zone::of_minutes(330).unwrap(), shortcuts: false };
        let header: Vec<_> =
            wanted.set_cookies().iter().map(|c| c.split(';').next().unwrap_or_default().to_owned()).collect();
        assert_eq!(Preferences::of_cookies(&format!("session=x; {}", header.join("; "))), wanted);
    }

    #[test]
    fn nonsense_in_a_cookie_is_the_default() {
        let header = "holdfast_theme=\"><script>; holdfast_zone=9999999999; other";
        assert_eq!(Preferences::of_cookies(header), Preferences::default());
    }

    #[test]
    fn a_form_changes_only_what_it_holds() {
        let before = Preferences { theme: Theme::Dark, ..Preferences::default() };
        assert!(before.of_form([("theme", "light")]).shortcuts);
        assert_eq!(before.of_form([("theme", "light")]).theme, Theme::Light);
        assert!(!before.of_form([("profile", "1"), ("zone", "60")]).shortcuts);
    }

    #[test]
    fn a_host_with_shell_characters_is_not_shown() {
        assert!(is_host("127.0.0.1:3000") && is_host("[::1]:80"));
        assert!(!is_host("a$(id)") && !is_host("a b") && !is_host("a'b"));
    }
}
