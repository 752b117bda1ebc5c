//! Whether the devices are there that the replica asks for: NVIDIA's management library, loaded where it is.

use nvml_wrapper::{Nvml, error::NvmlError};

use super::Found;

/// Its name wherever a driver is installed; the one without the number is for developers.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// Counts the devices that can be seen and answer.
pub fn devices(asked: u32) -> Found {
    if asked == 0 {
        return Found::skipped("the replica asks for no NVIDIA device");
    }
    let nvml = match Nvml::builder().lib_path(LIBRARY.as_ref()).init() {
        Ok(nvml) => nvml,
        Err(NvmlError::LibloadingError(why)) => {
            return Found::skipped(format!("{LIBRARY} is not here to be asked: {why}"));
        }
        Err(why) => {
            return Found::failed(
                format!("the NVIDIA driver cannot be asked: {why}"),
                "Look at the driver of the node (nvidia-smi); after a driver update the node needs a restart.",
            );
        }
    };
    let count = match nvml.device_count() {
        Ok(count) => count,
        Err(why) => return lost(format!("the NVIDIA driver does not say how many devices there are: {why}")),
    };
    let silent = (0..count).find_map(|index| Some((index, nvml.device_by_index(index).err()?)));
    judge(asked, count, silent.map(|(index, why)| (index, why.to_string())))
}

fn judge(asked: u32, count: u32, silent: Option<(u32, String)>) -> Found {
    let found = match silent {
        Some((index, why)) => lost(format!("device {index} does not answer: {why}")),
        None if count < asked => lost(format!("{count} of {asked} devices are visible")),
        None => Found::passed(format!("{count} devices are visible, {asked} are asked for")),
    };
    found.measured("devices", f64::from(count)).measured("asked", f64::from(asked))
}

fn lost(text: String) -> Found {
    Found::failed(
        text,
        "Look at the node's kernel log for Xids and reset the GPU, or keep jobs off the node.",
    )
}

#[cfg(test)]
mod tests {
    use engine::checks::CheckOutcome::{Failed, Passed, Skipped};

    use super::*;

    #[test]
    fn fewer_devices_than_asked_for_are_a_failure_and_no_library_is_none() {
        assert_eq!(devices(0).outcome, Skipped);
        assert_eq!(judge(8, 8, None).outcome, Passed);
        let found = judge(8, 7, None);
        assert_eq!((found.outcome, found.text.as_str()), (Failed, "7 of 8 devices are visible"));
        assert_eq!(judge(1, 8, Some((3, "GPU is lost".to_owned()))).outcome, Failed);
    }
}
