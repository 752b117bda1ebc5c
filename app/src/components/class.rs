//! Class lists that several parts of the job pages share, as literals so that the style build finds them.

/// Small print below a value, on its own line.
pub const SMALL: &str = "block text-xs text-ink-3 font-normal";
/// Names and values.
pub const FACTS: &str = "grid grid-cols-[104px_minmax(0,1fr)] gap-x-4 gap-y-2 max-sm:grid-cols-1 max-sm:gap-y-0 [&>dd]:min-w-0 [&>dd]:wrap-anywhere max-sm:[&>dd]:mb-2.5 [&>dt]:text-ink-3";
/// A table that keeps its columns readable and scrolls on small screens.
pub const TABLE: &str = "min-w-176 [&_tbody_tr:last-child>*]:border-b-0 [&_td]:border-b [&_td]:border-hair [&_td]:px-3 [&_td]:py-[7px] [&_td]:align-top [&_tbody_th]:border-b [&_tbody_th]:border-hair [&_tbody_th]:px-3 [&_tbody_th]:py-[7px] [&_tbody_th]:align-top [&_thead_th]:border-b [&_thead_th]:border-hair [&_thead_th]:bg-sunken [&_thead_th]:px-3 [&_thead_th]:py-1.5 [&_thead_th]:text-xs [&_thead_th]:whitespace-nowrap [&_thead_th]:text-ink-3";
/// The same for a table of few short columns.
pub const TABLE_NARROW: &str = "[&_tbody_tr:last-child>*]:border-b-0 [&_td]:border-b [&_td]:border-hair [&_td]:px-3 [&_td]:py-[7px] [&_td]:align-top [&_tbody_th]:border-b [&_tbody_th]:border-hair [&_tbody_th]:px-3 [&_tbody_th]:py-[7px] [&_tbody_th]:align-top [&_thead_th]:border-b [&_thead_th]:border-hair [&_thead_th]:bg-sunken [&_thead_th]:px-3 [&_thead_th]:py-1.5 [&_thead_th]:text-xs [&_thead_th]:whitespace-nowrap [&_thead_th]:text-ink-3";
/// A small button that is chosen.
pub const CHOSEN: &str = "inline-flex items-center justify-center gap-1.5 h-6.5 px-2.5 border border-ink rounded-md bg-ink text-xs font-medium text-on-ink whitespace-nowrap cursor-pointer max-sm:min-h-11";
/// A link at the end of a line.
pub const AT_END: &str = "ml-auto";
/// A table of many columns.
pub const TABLE_WIDE: &str = "min-w-288 [&_tbody_tr:last-child>*]:border-b-0 [&_td]:border-b [&_td]:border-hair [&_td]:px-3 [&_td]:py-[7px] [&_td]:align-top [&_tbody_th]:border-b [&_tbody_th]:border-hair [&_tbody_th]:px-3 [&_tbody_th]:py-[7px] [&_tbody_th]:align-top [&_thead_th]:border-b [&_thead_th]:border-hair [&_thead_th]:bg-sunken [&_thead_th]:px-3 [&_thead_th]:py-1.5 [&_thead_th]:text-xs [&_thead_th]:whitespace-nowrap [&_thead_th]:text-ink-3";
