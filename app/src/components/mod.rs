//! Shared parts of pages. They show what signals and views give them and fetch nothing.

pub mod answers;
pub mod badge;
pub mod button;
pub mod confirm;
pub mod failed;
pub mod field;
pub mod frame;
pub mod icon;
pub mod live_mark;
pub mod notice;
pub mod pips;
pub mod segmented;
pub mod table;
pub mod tabs;
pub mod when;
