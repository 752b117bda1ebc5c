//! `holdfast user` and `holdfast token`: accounts and tokens, made and taken back in the shell beside the data.

use std::io::{BufRead, Write};

use anyhow::{Context, bail};
use sqlx::AnyConnection;

use crate::{
    clock::{Clock, SystemClock},
    config::{Storage, Token, User},
    secrets::{self, new_secret},
    serve::data_dir,
    store::{
        self, Store,
        accounts::{self, AccountError},
    },
};

/// Longest line that is read as a password; [`secrets`] decides what is too long.
const LINE_BYTES: u64 = 64 * 1024;

/// Opens the database of a data directory, made where it is missing.
///
/// # Errors
/// The directory or the database cannot be made.
pub async fn open(storage: &Storage) -> anyhow::Result<Store> {
    data_dir(&storage.data)?;
    Ok(Store::open(&storage.database_url()).await?)
}

/// Adds, removes or changes an account, and says its password where one was made.
///
/// # Errors
/// A name that is taken, not allowed or unknown, a password that is too short.
pub async fn user(command: &User, input: impl BufRead, mut output: impl Write) -> anyhow::Result<()> {
    match command {
        User::Add { name, password_stdin, storage } => {
            let password = Password::take(*password_stdin, input)?;
            let hash = password.hash()?;
            let now = SystemClock.now();
            change(storage, async |db| accounts::add(db, name, &hash, now).await).await?;
            write!(output, "Account {name} is made.")?;
            password.tell(&mut output)
        }
        User::Remove { name, storage } => {
            let left = async |db: &mut AnyConnection| {
                accounts::remove(db, name).await?;
                Ok(accounts::any(db).await?)
            };
            let left = change(storage, left).await?;
            writeln!(output, "Account {name} is removed, and its sessions and tokens with it.")?;
            if !left {
                writeln!(
                    output,
                    "It was the last one: nobody can sign in now, and a server on loopback lets everybody in from its next start on."
                )?;
            }
            Ok(())
        }
        User::Password { name, password_stdin, storage } => {
            let password = Password::take(*password_stdin, input)?;
            let hash = password.hash()?;
            change(storage, async |db| accounts::set_password(db, name, &hash).await).await?;
            write!(output, "The password of account {name} is changed, and its sessions have ended.")?;
            password.tell(&mut output)
        }
    }
}

/// Makes a token and prints it alone on a line, or revokes those of a name.
///
/// # Errors
/// No such account, or no such token of it.
pub async fn token(command: &Token, mut output: impl Write) -> anyhow::Result<()> {
    match command {
        Token::Create { user, name, storage } => {
            if name.is_empty() || name.chars().count() > 200 || engine::words::unseen(name).is_some() {
                bail!("a token's name has 1 to 200 characters, all of which can be seen");
            }
            let token = new_secret()?;
            let (hash, now) = (secrets::fingerprint(token.as_bytes()), SystemClock.now());
            change(storage, async |db| accounts::add_token(db, &hash, user, name, now).await).await?;
            writeln!(output, "{token}")?;
        }
        Token::Revoke { user, name, storage } => {
            let revoke = async |db: &mut AnyConnection| accounts::revoke_tokens(db, user, name).await;
            match change(storage, revoke).await? {
                1 => writeln!(output, "Token {name} of account {user} is revoked.")?,
                many => writeln!(output, "{many} tokens named {name} of account {user} are revoked.")?,
            }
        }
    }
    Ok(())
}

/// Changes something in the database that servers use, or leaves it as it was.
async fn change<T>(
    storage: &Storage,
    change: impl AsyncFnOnce(&mut AnyConnection) -> Result<T, AccountError>,
) -> anyhow::Result<T> {
    let store = open(storage).await?;
    let mut tx = store.write().await?;
    let done = change(&mut tx).await?;
    store::commit(tx).await?;
    store.close().await;
    Ok(done)
}

/// A password that an account is given.
enum Password {
    /// It was made here, and is told once.
    Made(String),
    Given(String),
}

impl Password {
    fn take(given: bool, input: impl BufRead) -> anyhow::Result<Self> {
        if !given {
            return Ok(Self::Made(new_secret()?[..20].to_owned()));
        }
        let mut line = String::new();
        input.take(LINE_BYTES).read_line(&mut line).context("cannot read the password")?;
        Ok(Self::Given(line.trim_end_matches(['\r', '\n']).to_owned()))
    }

    fn hash(&self) -> anyhow::Result<String> {
        let (Self::Made(password) | Self::Given(password)) = self;
        Ok(secrets::hash_password(password)?)
    }

    /// Ends the line that says what was done.
    fn tell(self, output: &mut impl Write) -> anyhow::Result<()> {
        match self {
            Self::Made(password) => writeln!(output, " Its password, shown this once: {password}")?,
            Self::Given(_) => writeln!(output)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::config::{self, Command};

    /// What the program prints when it is called so, or why it fails.
    async fn run(data: &std::path::Path, words: &str, input: &str) -> Result<String, String> {
        let words = words.split(' ').map(OsString::from);
        let data = [OsString::from("--data"), data.into()];
        let cli = config::parse([OsString::from("holdfast")].into_iter().chain(words).chain(data));
        let mut output = Vec::new();
        let done = match cli.unwrap().command {
            Command::User(command) => user(&command, input.as_bytes(), &mut output).await,
            Command::Token(command) => token(&command, &mut output).await,
            other => panic!("{other:?}"),
        };
        done.map(|()| String::from_utf8(output).unwrap()).map_err(|error| format!("{error:#}"))
    }

    async fn is_password(data: &std::path::Path, name: &str, password: &str) -> bool {
        let store = Store::open(&format!("sqlite://{}", data.join("holdfast.db").display())).await.unwrap();
        let hash = accounts::password_hash(&mut store.read().await.unwrap(), name).await.unwrap();
        store.close().await;
        secrets::verify_password(password, &hash.unwrap()).unwrap()
    }

    #[tokio::test]
    async fn an_account_is_made_given_another_password_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let told = run(dir.path(), "user add ann", "").await.unwrap();
        let (_, made) = told.split_once("Account ann is made. Its password, shown this once: ").unwrap();
        assert!(is_password(dir.path(), "ann", made.trim_end()).await);

        let given = "correct horse battery\nsecond line";
        let told = run(dir.path(), "user password ann --password-stdin", given).await.unwrap();
        assert_eq!(told, "The password of account ann is changed, and its sessions have ended.\n");
        assert!(is_password(dir.path(), "ann", "correct horse battery").await);
        let told = run(dir.path(), "user password ann", given).await.unwrap();
        let (_, made) = told.split_once(" Its password, shown this once: ").unwrap();
        assert!(is_password(dir.path(), "ann", made.trim_end()).await);
        assert!(run(dir.path(), "user password ann --password-stdin", "short").await.is_err());

        run(dir.path(), "user add bob", "").await.unwrap();
        let told = run(dir.path(), "user remove bob", "").await.unwrap();
        assert_eq!(told, "Account bob is removed, and its sessions and tokens with it.\n");
        assert!(run(dir.path(), "user remove ann", "").await.unwrap().contains("It was the last one"));
        for command in ["user remove ann", "user password ann", "token revoke --user ann --name ci"] {
            let why = run(dir.path(), command, "").await.unwrap_err();
            assert!(why.starts_with("there is no account named ann"), "{command}: {why}");
        }
    }

    #[tokio::test]
    async fn a_token_is_revoked_by_account_and_name() {
        let dir = tempfile::tempdir().unwrap();
        run(dir.path(), "user add ann", "").await.unwrap();
        for name in ["ci", "ci", "laptop"] {
            let token = run(dir.path(), &format!("token create --user ann --name {name}"), "").await.unwrap();
            assert_eq!(token.lines().count(), 1);
        }
        let revoke =
            async |name| run(dir.path(), &format!("token revoke --user ann --name {name}"), "").await;
        assert_eq!(revoke("laptop").await.unwrap(), "Token laptop of account ann is revoked.\n");
        assert_eq!(revoke("ci").await.unwrap(), "2 tokens named ci of account ann are revoked.\n");
        assert_eq!(revoke("ci").await.unwrap_err(), "account ann has no token named ci; it has none");
    }
}
