//! `holdfast user` and `holdfast token`: the first accounts and tokens, made in the shell beside the data.

use std::io::{BufRead, Write};

use anyhow::{Context, bail};

use crate::{
    clock::{Clock, SystemClock},
    config::{Storage, Token, User},
    secrets::{self, new_secret},
    store::{self, Store, accounts},
};

/// Longest line that is read as a password; [`secrets`] decides what is too long.
const LINE_BYTES: u64 = 64 * 1024;

/// Opens the database of a data directory, made where it is missing.
///
/// # Errors
/// The directory or the database cannot be made.
pub async fn open(storage: &Storage) -> anyhow::Result<Store> {
    std::fs::create_dir_all(&storage.data)
        .with_context(|| format!("cannot make the data directory {}", storage.data.display()))?;
    Ok(Store::open(&storage.database_url()).await?)
}

/// Adds an account and says its password where it made one.
///
/// # Errors
/// A name that is taken or not allowed, a password that is too short.
pub async fn user(command: &User, input: impl BufRead, mut output: impl Write) -> anyhow::Result<()> {
    let User::Add { name, password_stdin, storage } = command;
    let made = if *password_stdin { None } else { Some(new_secret()?[..20].to_owned()) };
    let password = match &made {
        Some(password) => password.clone(),
        None => {
            let mut line = String::new();
            input.take(LINE_BYTES).read_line(&mut line).context("cannot read the password")?;
            line.trim_end_matches(['\r', '\n']).to_owned()
        }
    };
    let hash = secrets::hash_password(&password)?;
    let store = open(storage).await?;
    let mut tx = store.write().await?;
    accounts::add(&mut tx, name, &hash, SystemClock.now()).await?;
    store::commit(tx).await?;
    store.close().await;
    match made {
        Some(password) => {
            writeln!(output, "Account {name} is made. Its password, shown this once: {password}")?
        }
        None => writeln!(output, "Account {name} is made.")?,
    }
    Ok(())
}

/// Makes a token and prints it alone on a line.
///
/// # Errors
/// No such account.
pub async fn token(command: &Token, mut output: impl Write) -> anyhow::Result<()> {
    let Token::Create { user, name, storage } = command;
    if name.is_empty() || name.chars().count() > 200 || engine::words::unseen(name).is_some() {
        bail!("a token's name has 1 to 200 characters, all of which can be seen");
    }
    let token = new_secret()?;
    let store = open(storage).await?;
    let mut tx = store.write().await?;
    accounts::add_token(&mut tx, &secrets::fingerprint(token.as_bytes()), user, name, SystemClock.now())
        .await?;
    store::commit(tx).await?;
    store.close().await;
    writeln!(output, "{token}")?;
    Ok(())
}
