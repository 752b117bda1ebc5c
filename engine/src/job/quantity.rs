//! Amounts as Kubernetes writes them: `4`, `0.5`, `500m`, `64Gi`, `1e3`.

/// An amount above or at zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    /// In thousandths of what is counted; what is finer is rounded up, as Kubernetes does.
    pub thousandths: u128,
    /// Whether nothing was rounded.
    pub exact: bool,
}

impl Quantity {
    /// Reads an amount; none where the text is no amount, has a sign or is beyond everything that is counted.
    pub fn read(text: &str) -> Option<Self> {
        let unit_at = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_at);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        // One digit more than 10^38 holds; a second dot is no digit.
        let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
        let decimals = u32::try_from(fraction.len()).ok()?;
        let (times, tens) = match unit {
            "" => (1, 0),
            "n" => (1, -9),
            "u" => (1, -6),
            "m" => (1, -3),
            "k" => (1, 3),
            "M" => (1, 6),
            "G" => (1, 9),
            "T" => (1, 12),
            "P" => (1, 15),
            "E" => (1, 18),
            "Ki" => (1 << 10, 0),
            "Mi" => (1 << 20, 0),
            "Gi" => (1 << 30, 0),
            "Ti" => (1 << 40, 0),
            "Pi" => (1 << 50, 0),
            "Ei" => (1 << 60, 0),
            exponent => (1, exponent.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?),
        };
        let up = tens.checked_add(3)?;
        let power = |exponent: u32| 10u128.checked_pow(exponent);
        let above = digits.checked_mul(times)?.checked_mul(power(u32::try_from(up).unwrap_or(0))?)?;
        let below = power(decimals.checked_add(up.min(0).unsigned_abs())?)?;
        Some(Self { thousandths: above.div_ceil(below), exact: above.is_multiple_of(below) })
    }

    /// The amount in whole units, rounded up.
    pub const fn units(self) -> u128 {
        self.thousandths.div_ceil(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_read_as_kubernetes_reads_them() {
        for (text, want) in [
            ("4", 4_000),
            ("0", 0),
            ("0.5", 500),
            (".5", 500),
            ("4.", 4_000),
            ("500m", 500),
            ("1e3", 1_000_000),
            ("1E3", 1_000_000),
            ("1e+3", 1_000_000),
            ("12e-1", 1_200),
            ("1E", 10u128.pow(21)),
            ("1Ki", 1_024_000),
            ("1.5Gi", 1_610_612_736_000),
            ("64Gi", 64 * 1_073_741_824_000),
            ("2M", 2_000_000_000),
            ("1000000n", 1),
        ] {
            assert_eq!(Quantity::read(text), Some(Quantity { thousandths: want, exact: true }), "{text}");
        }
        for (text, thousandths) in [("1u", 1), ("0.0001", 1), ("1.0001", 1001)] {
            assert_eq!(Quantity::read(text), Some(Quantity { thousandths, exact: false }), "{text}");
        }
    }

    #[test]
    fn what_is_no_amount_is_none() {
        for text in [
            "",
            ".",
            "-1",
            "+1",
            "1 Gi",
            "Gi",
            "4 cores",
            "64GB",
            "64gi",
            "1K",
            "1.2.3",
            "1e",
            "1e2.5",
            "e3",
            "0x10",
            "1_000",
            "٤",
            "1e999999999999",
            "1e99",
            "1e-99",
            "99999999999999999999999999999999999999999999",
        ] {
            assert_eq!(Quantity::read(text), None, "{text}");
        }
    }
}
