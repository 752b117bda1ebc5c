//! Hides what looks confidential in texts that are read elsewhere than a program's log, by more people. Pure, and only as good as the names
//! and beginnings that are known.

/// How names of what nobody should read end, in small letters and with `_` for `-`.
const CONFIDENTIAL: [&str; 15] = [
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "_pass",
    "secret",
    "token",
    "credential",
    "credentials",
    "_key",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "authorization",
];
/// How secrets begin that are told by themselves: of Hugging Face, OpenAI and those like it, AWS, GitHub, GitLab, Google, NVIDIA, Slack, and
/// JWTs.
const SECRETS: [&str; 17] = [
    "hf_",
    "sk-",
    "AKIA",
    "ASIA",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "AIza",
    "nvapi-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "eyJ",
];
/// Characters of a secret after its beginning, and how many of them without a break look drawn by lot.
const SECRET_CHARS: usize = 16;
const DRAWN_CHARS: usize = 8;
pub const HIDDEN: &str = "***";

/// A line without the values of confidential names (`TOKEN=…`, `password: …`, `--token …`), without the passwords of addresses, what a
/// bearer shows, and what is known for a secret by its beginning.
pub fn hide(line: &str) -> String {
    let mut words = Vec::new();
    // Why the next word may be a value, or a sign.
    let (mut next, mut signs_next) = (After::Nothing, false);
    for word in line.split(' ') {
        let (after, is_sign) = (std::mem::take(&mut next), std::mem::take(&mut signs_next));
        let mut signs = word.match_indices(['=', ':']).map(|(at, _)| at);
        let sign = signs.find(|at| is_confidential(&word[..*at]));
        let is_value = match after {
            After::Nothing => false,
            After::Sign => true,
            After::Argument => !is_argument(word),
            After::Bearer => sign.is_none(),
        };
        words.push(match sign {
            _ if is_value && word.is_empty() => {
                next = after;
                String::new()
            }
            _ if is_value && is_lead(plain(word)) || is_sign && matches!(word, "=" | ":") => {
                next = After::Sign;
                word.to_owned()
            }
            // A number is a count, as of the tokens of a batch.
            _ if is_value && !is_number(word) => HIDDEN.to_owned(),
            Some(at) if at + 1 == word.len() || shows_bearer(&word[at + 1..]) => {
                next = After::Sign;
                word.to_owned()
            }
            Some(at) if !is_number(&word[at + 1..]) => format!("{}{HIDDEN}", open(&word[..=at])),
            _ => {
                signs_next = is_confidential(word);
                if is_argument(word) && is_confidential(plain(word)) {
                    next = After::Argument;
                } else if shows_bearer(word) {
                    next = After::Bearer;
                }
                open(word)
            }
        });
    }
    words.join(" ")
}

/// What stood before a word that may be a value for it.
#[derive(Clone, Copy, Default)]
enum After {
    #[default]
    Nothing,
    /// `password:`, after which anything is one.
    Sign,
    /// `--password`, after which another argument is none.
    Argument,
    /// `Bearer`, after which `token:` is none.
    Bearer,
}

/// A word that is no value itself, without what is confidential in it.
fn open(word: &str) -> String {
    without_secrets(&without_passwords(word))
}

/// Whether the word before what a bearer shows ends here: `Bearer`, or what ends so after a sign.
fn shows_bearer(word: &str) -> bool {
    let last = word.rsplit(|c: char| !c.is_ascii_alphanumeric()).next();
    last.is_some_and(|last| last.eq_ignore_ascii_case("bearer"))
}

/// Without what stands around a word in a list, a call, a quotation.
fn plain(word: &str) -> &str {
    word.trim_matches(['"', '\'', '`', ',', '(', ')', '[', ']'])
}

fn is_argument(word: &str) -> bool {
    plain(word).starts_with('-')
}

/// The word without secrets that are known by their beginning.
fn without_secrets(word: &str) -> String {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let (mut kept, mut left) = (String::new(), word);
    while let Some(start) = left.find(is_inner) {
        let (before, from) = left.split_at(start);
        let (run, after) = from.split_at(from.find(|c| !is_inner(c)).unwrap_or(from.len()));
        kept.push_str(before);
        kept.push_str(if is_secret(run) { HIDDEN } else { run });
        left = after;
    }
    kept.push_str(left);
    kept
}

/// Names of functions and files begin like secrets too (`hf_hub_download`); they are words, in small letters.
fn is_secret(run: &str) -> bool {
    let is_drawn = |part: &str| {
        part.len() >= DRAWN_CHARS && part.contains(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase())
    };
    let rest = SECRETS.iter().find_map(|start| run.strip_prefix(start));
    rest.is_some_and(|rest| rest.len() >= SECRET_CHARS && rest.split(['_', '-', '.']).any(is_drawn))
}

/// Whether what bears this name is nothing that others should read.
pub fn is_confidential(name: &str) -> bool {
    let name = name.trim_end_matches(['"', '\'']).to_lowercase().replace('-', "_");
    CONFIDENTIAL.iter().any(|confidential| name.ends_with(confidential))
}

/// It stands before a value and is none.
fn is_lead(word: &str) -> bool {
    ["=", ":", "bearer", "basic"].iter().any(|lead| word.eq_ignore_ascii_case(lead))
}

fn is_number(text: &str) -> bool {
    let text = text.trim_end_matches([',', ';', '.', ')']);
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// Every address of a word without its password, and without its user where that stands alone or before a password that is none: then it is a
/// token.
fn without_passwords(word: &str) -> String {
    let (mut kept, mut left) = (String::new(), word);
    while let Some(at) = left.find("://") {
        let (scheme, rest) = left.split_at(at + 3);
        kept.push_str(scheme);
        let end = rest.find(['/', '?', '#', '"', '\'', '<', '>']).unwrap_or(rest.len());
        left = match rest[..end].rsplit_once('@') {
            Some((account, _)) => {
                kept.push_str(&match account.split_once(':') {
                    Some((user, password)) if !matches!(password, "" | "x-oauth-basic") => {
                        format!("{user}:{HIDDEN}")
                    }
                    _ => HIDDEN.to_owned(),
                });
                &rest[account.len()..]
            }
            None => rest,
        };
    }
    kept.push_str(left);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_confidential_is_not_told() {
        for (text, want) in [
            ("login failed, token=abc123 user=ana", "login failed, token=*** user=ana"),
            ("HF_TOKEN: abc123", "HF_TOKEN: ***"),
            ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
            ("password = hunter2, user = ana", "password = *** user = ana"),
            ("AWS_SECRET_ACCESS_KEY=abc/def", "AWS_SECRET_ACCESS_KEY=***"),
            ("cannot reach postgres://ana:hunter2@db/x", "cannot reach postgres://ana:***@db/x"),
            ("GET https://hub/x?a=b&token=abc 403", "GET https://hub/x?a=b&token=*** 403"),
            (r#"sent {"token":"abc"}"#, r#"sent {"token":***"#),
            ("train.py --token hf_abc --lr 0.1", "train.py --token *** --lr 0.1"),
            (
                "login --password hunter2 --hub-token --secret 'a b'",
                "login --password *** --hub-token --secret *** b'",
            ),
            ("['run', '--api-key', 'abc', '--lr', '1']", "['run', '--api-key', *** '--lr', '1']"),
            ("train.py --max-token 4096 --tokenizer gpt2", "train.py --max-token 4096 --tokenizer gpt2"),
            ("sent Bearer abc.def to the hub", "sent Bearer *** to the hub"),
            ("sent Authorization:Bearer abc.def again", "sent Authorization:Bearer *** again"),
            (r#"{"Authorization":"Bearer abc"} 403"#, r#"{"Authorization":"Bearer *** 403"#),
            (r#"{"Authorization": "Bearer abc"} 403"#, r#"{"Authorization": "Bearer *** 403"#),
            ("curl -H 'Bearer abc' x", "curl -H 'Bearer *** x"),
            ("Bearer token: abc", "Bearer token: ***"),
            ("bad key hf_aBcDeFgHiJkLmNoPqRsTuVwXyZ123456.", "bad key ***"),
            ("(sk-proj-a1B2c3D4e5F6g7H8i9)", "(***)"),
            ("key AKIAIOSFODNN7EXAMPLE, region x", "key ***, region x"),
            ("https://hf_aBcDeFgHiJkLmNoPqRsTuVwXyZ123456@hub/x", "https://***@hub/x"),
            ("got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "got ***"),
            (
                "in hf_hub_download of hf_transfer_is_installed",
                "in hf_hub_download of hf_transfer_is_installed",
            ),
            ("pip install sk-learn-compatible-tools", "pip install sk-learn-compatible-tools"),
            ("OSError: tokenizer.json: not found", "OSError: tokenizer.json: not found"),
            ("see https://example.org/a@b", "see https://example.org/a@b"),
            ("amqp://ana:p@ss:w@mq:5672/x", "amqp://ana:***@mq:5672/x"),
            ("git clone https://0123abcd@hub/x.git", "git clone https://***@hub/x.git"),
            ("git clone https://0123abcd:@hub/x.git", "git clone https://***@hub/x.git"),
            ("https://0123abcd:x-oauth-basic@hub/x", "https://***@hub/x"),
            ("redis://:hunter2@a,redis://:hunter3@b/0", "redis://:***@a,redis://:***@b/0"),
            (
                r#"{"a":"http://u:p1@h/","b":"http://u:p2@h?q=1"}"#,
                r#"{"a":"http://u:***@h/","b":"http://u:***@h?q=1"}"#,
            ),
            ("url=http://u:p1@h/x;http://p2@h", "url=http://u:***@h/x;http://***@h"),
            ("http://h:80/a http://h", "http://h:80/a http://h"),
            ("DB_PASS=a1 SSH_KEY=b2 MYSQL_PWD=c3", "DB_PASS=*** SSH_KEY=*** MYSQL_PWD=***"),
            ("GPG_PASSPHRASE=a1 credentials: b2", "GPG_PASSPHRASE=*** credentials: ***"),
            ("aws_credential=a1 run --private-key b2", "aws_credential=*** run --private-key ***"),
            ("KeyError: 'x', monkey: 2b, pass: 2b", "KeyError: 'x', monkey: 2b, pass: 2b"),
            ("tokens: 4096, loss=0.5", "tokens: 4096, loss=0.5"),
            (
                "KeyError: 'token_type_ids' on worker-1, rank 1",
                "KeyError: 'token_type_ids' on worker-1, rank 1",
            ),
        ] {
            assert_eq!(hide(text), want, "{text}");
        }
    }
}
