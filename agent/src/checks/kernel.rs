//! The kernel's log: broken GPUs, disks that cannot be read, processes killed for memory.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
};

use engine::checks::{is_hardware_xid, limits};

use super::Found;

/// Where the kernel's log is.
const LOG: &str = "/dev/kmsg";
/// Records that are read; the kernel's usual buffer has no more.
const RECORDS: usize = 50_000;
/// Bytes of a record; the kernel cuts them at 1 KiB and adds its head.
const RECORD_BYTES: usize = 8 * 1024;
/// Characters of a record that are shown.
const SHOWN_CHARS: usize = 300;
/// Devices that are missing or empty rather than broken: drives for floppies and discs, files, memory.
const NO_DISKS: [&str; 5] = ["fd", "sr", "loop", "zram", "ram"];

/// What recent records tell of.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    /// The newest record that blames the node: what it is, how old, its words.
    fault: Option<(String, u64, String)>,
    faults: u32,
    killed: u32,
}

/// Looks at what the kernel told lately.
pub fn kernel_log() -> Found {
    let uptime = match uptime() {
        Ok(uptime) => uptime,
        Err(why) => return Found::skipped(format!("/proc/uptime cannot be read: {why}")),
    };
    // Never waits: there is nothing to wait for.
    match OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(LOG) {
        Ok(log) => match read(log, uptime) {
            Ok(told) => judge(&told),
            Err(why) => Found::skipped(format!("{LOG} cannot be read: {why}")),
        },
        Err(why) => Found::skipped(format!("{LOG} cannot be opened: {why}")),
    }
}

/// Seconds since the machine started.
fn uptime() -> io::Result<f64> {
    let text = fs::read_to_string("/proc/uptime")?;
    let first = text.split(' ').next().and_then(|word| word.parse().ok());
    first.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

fn read(mut log: File, uptime: f64) -> io::Result<Told> {
    let mut told = Told::default();
    let mut buffer = vec![0; RECORD_BYTES];
    for _ in 0..RECORDS {
        match log.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => take(&mut told, &String::from_utf8_lossy(&buffer[..length]), uptime),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => break,
            // Records were overwritten while they were read, or one does not fit: the next is read.
            Err(why) if matches!(why.raw_os_error(), Some(libc::EPIPE | libc::EINVAL | libc::EINTR)) => {}
            Err(why) => return Err(why),
        }
    }
    Ok(told)
}

/// Takes one record: `priority,sequence,microseconds since the start,flags;text`.
fn take(told: &mut Told, record: &str, uptime: f64) {
    let Some((head, text)) = record.split_once(';') else { return };
    let mut fields = head.split(',');
    let priority: Option<u32> = fields.next().and_then(|field| field.parse().ok());
    let at: Option<u64> = fields.nth(1).and_then(|field| field.parse().ok());
    let (Some(priority), Some(at)) = (priority, at) else { return };
    let age = uptime - at as f64 / 1e6;
    // What programs write there has another facility than the kernel's own.
    if priority >> 3 != 0 || age > limits::KERNEL_SECONDS as f64 {
        return;
    }
    let text = text.lines().next().unwrap_or_default();
    if text.contains("Out of memory: Kill") || text.contains("Memory cgroup out of memory: Kill") {
        told.killed += 1;
    }
    if let Some(what) = fault(text) {
        let shown = text.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS).collect();
        told.faults += 1;
        told.fault = Some((what, age.max(0.0) as u64, shown));
    }
}

/// What a record says is broken on the node.
fn fault(text: &str) -> Option<String> {
    if let Some(xid) = number_after(text, "NVRM: Xid (").filter(|xid| is_hardware_xid(*xid)) {
        return Some(format!("Xid {xid}"));
    }
    if let Some(number) = number_after(text, "SXid (").filter(|_| text.contains("Fatal,")) {
        return Some(format!("NVSwitch SXid {number}"));
    }
    let (_, device) = text.split_once("I/O error, dev ").or_else(|| text.split_once("medium error, dev "))?;
    let device = device.split([',', ' ']).next()?;
    let is_disk = !NO_DISKS.iter().any(|other| {
        device.strip_prefix(other).is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
    });
    is_disk.then(|| format!("I/O error of {device}"))
}

/// `Xid (PCI:0000:3b:00): 79, …`: the number behind the bracket.
fn number_after(text: &str, head: &str) -> Option<u32> {
    let (_, rest) = text.split_once(head)?;
    let (_, rest) = rest.split_once("): ")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok()
}

fn judge(told: &Told) -> Found {
    let minutes = limits::KERNEL_SECONDS / 60;
    let found = match &told.fault {
        Some((what, age, text)) => Found::failed(
            format!("{what}, {age} s ago: {text}"),
            "Look at the node before jobs use it again: reset the GPU, or replace the disk, that the record names.",
        ),
        None if told.killed > 0 => Found::passed(format!(
            "nothing is broken; {} killed for memory in the last {minutes} min",
            if told.killed == 1 {
                "1 process was".to_owned()
            } else {
                format!("{} processes were", told.killed)
            }
        )),
        None => Found::passed(format!("nothing is broken in the last {minutes} min")),
    };
    found.measured("faults", f64::from(told.faults)).measured("killed_for_memory", f64::from(told.killed))
}

#[cfg(test)]
mod tests {
    use engine::checks::CheckOutcome::{Failed, Passed};

    use super::*;

    const UPTIME: f64 = 10_000.0;

    fn record(priority: u32, age: f64, text: &str) -> String {
        format!("{priority},77,{},-;{text}\n SUBSYSTEM=x\n", ((UPTIME - age) * 1e6) as u64)
    }

    #[test]
    fn only_what_the_kernel_itself_told_lately_of_a_broken_part_counts() {
        let xid = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus.";
        for (case, priority, age, text, want) in [
            ("a GPU is gone", 3, 60.0, xid, Some("Xid 79")),
            ("too long ago", 3, 901.0, xid, None),
            ("written by a program", 11, 60.0, xid, None),
            ("the program's own fault", 3, 5.0, "NVRM: Xid (PCI:0000:3b:00): 31, pid=4711", None),
            (
                "a switch",
                3,
                5.0,
                "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30",
                Some("NVSwitch SXid 20034"),
            ),
            (
                "a switch that goes on",
                3,
                5.0,
                "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 30",
                None,
            ),
            ("a disk", 3, 1.0, "I/O error, dev sda, sector 8 op 0x0:(READ)", Some("I/O error of sda")),
            (
                "a disk's medium",
                3,
                1.0,
                "blk_update_request: critical medium error, dev nvme0n1, sector 8",
                Some("I/O error of nvme0n1"),
            ),
            ("no floppy in the drive", 3, 1.0, "blk_update_request: I/O error, dev fd0, sector 0", None),
            ("a healthy disk", 6, 1.0, "sda: sda1 sda2", None),
        ] {
            let mut told = Told::default();
            take(&mut told, &record(priority, age, text), UPTIME);
            assert_eq!(told.fault.as_ref().map(|(what, ..)| what.as_str()), want, "{case}");
            assert_eq!(judge(&told).outcome, if want.is_some() { Failed } else { Passed }, "{case}");
        }
    }

    #[test]
    fn processes_killed_for_memory_are_told_and_blame_nobody() {
        let mut told = Told::default();
        take(&mut told, &record(3, 9.0, "Memory cgroup out of memory: Killed process 7 (python3)"), UPTIME);
        take(&mut told, "nonsense", UPTIME);
        take(&mut told, ";;,,\u{0}", UPTIME);
        let found = judge(&told);
        assert_eq!(found.outcome, Passed);
        assert!(found.text.contains("1 process was killed for memory"), "{found:?}");
    }
}
