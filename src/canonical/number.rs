//! Numbers as exact decimals: equal values have equal text, other values have other text.
//!
//! A number is never turned into a double. RFC 8785 does, and so gives the order ids 9007199254740992 and
//! 9007199254740993 one text. Here the digits and the exponent are taken from the token as they are, and only the
//! *layout* follows RFC 8785 (that is, ECMAScript's `Number::toString`): plain digits up to 10²¹, a fraction down to
//! 10⁻⁶, an exponent beyond. A number with at most 17 significant digits therefore looks as RFC 8785 writes it.
//!
//! ECMAScript never writes more than 17 digits, so what a longer number looks like is ours to say: a whole number
//! of more than 17 significant digits is written without an exponent if that takes at most 128 characters. An
//! exponent would make most readers take the number for a double, and a tool that gets the raw text would be handed
//! another id than the one that was hashed.
//!
//! Every number's text can be read again: a value whose text would be longer than a token may be is refused.

use std::borrow::Cow;
use std::fmt;

/// The longest number token and text, in characters, sign and exponent included.
pub(super) const MAX_TOKEN: usize = 128;
/// The largest decimal exponent, as in [`f64::MAX`]; the smallest is its negative.
const MAX_EXPONENT: i32 = 308;
/// The most significant digits that the shortest text of a double has.
const DOUBLE_DIGITS: usize = 17;

/// A number in its canonical text. Two numbers are equal if and only if their values are.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Number<'a>(Cow<'a, str>);

/// Why a token is no number here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfit {
    /// The exponent, written or resulting, lies beyond ±308.
    OutOfRange,
    /// The token or its canonical text has more than [`MAX_TOKEN`] characters.
    TooLong,
}

impl<'a> Number<'a> {
    /// The number that `token` spells. The token must follow the JSON grammar.
    pub(super) fn from_token(token: &'a str) -> Result<Self, Unfit> {
        if let Some(text) = plain(token) {
            return Ok(Self(Cow::Borrowed(text)));
        }
        if token.len() > MAX_TOKEN {
            return Err(Unfit::TooLong);
        }
        let text = Decimal::parse(token)?.layout();
        if text.len() > MAX_TOKEN { Err(Unfit::TooLong) } else { Ok(Self(Cow::Owned(text))) }
    }

    /// The same number, borrowing from nothing.
    pub fn into_owned(self) -> Number<'static> {
        Number(Cow::Owned(self.0.into_owned()))
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the value is a whole number, however it was spelled: `1.0` and `1e3` are.
    pub fn is_integer(&self) -> bool {
        match self.0.split_once("e+") {
            None => !self.0.contains(['.', 'e']),
            Some((digits, exponent)) => {
                let fraction = digits.split_once('.').map_or(0, |(_, fraction)| fraction.len());
                exponent.parse::<usize>().is_ok_and(|exponent| exponent >= fraction)
            }
        }
    }

    /// Whether the value is a whole number that neither `i64`, `u64` nor the nearest double gives back.
    pub(super) fn would_round(&self) -> bool {
        let text = &*self.0;
        let fits = text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok();
        !fits && self.is_integer() && !self.survives_as_double()
    }

    fn survives_as_double(&self) -> bool {
        let double: f64 = self.0.parse().unwrap_or(f64::INFINITY);
        double.is_finite()
            && Number::from_token(&format!("{double:e}")).is_ok_and(|number| number.as_str() == self.as_str())
    }
}

impl fmt::Display for Number<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Number<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The canonical text of most numbers is their token, up to zeros at the end. `None` for all others.
fn plain(token: &str) -> Option<&str> {
    let has_exponent = token.bytes().any(|byte| matches!(byte, b'e' | b'E'));
    if token.len() > DOUBLE_DIGITS || has_exponent {
        return None;
    }
    let text = if token.contains('.') { token.trim_end_matches('0').trim_end_matches('.') } else { token };
    match text.trim_start_matches('-') {
        "0" => Some("0"),
        digits if digits.starts_with("0.0") => None,
        _ => Some(text),
    }
}

/// Significant digits without zeros at either end, and where the point stands: the value is 0.DIGITS × 10^point.
struct Decimal {
    negative: bool,
    digits: [u8; MAX_TOKEN],
    count: usize,
    point: i32,
}

impl Decimal {
    fn parse(token: &str) -> Result<Self, Unfit> {
        let (mantissa, exponent) = token.split_once(['e', 'E']).unwrap_or((token, "0"));
        let exponent = written_exponent(exponent)?;
        let mut decimal =
            Self { negative: mantissa.starts_with('-'), digits: [0; MAX_TOKEN], count: 0, point: exponent };
        let mut whole = true;
        for byte in mantissa.trim_start_matches('-').bytes() {
            if byte == b'.' {
                whole = false;
            } else {
                decimal.push(byte, whole);
            }
        }
        while decimal.count > 0 && decimal.digits[decimal.count - 1] == b'0' {
            decimal.count -= 1;
        }
        let exponent = decimal.point - 1;
        if decimal.count > 0 && !(-MAX_EXPONENT..=MAX_EXPONENT).contains(&exponent) {
            return Err(Unfit::OutOfRange);
        }
        Ok(decimal)
    }

    fn push(&mut self, digit: u8, whole: bool) {
        if self.count == 0 && digit == b'0' {
            // A leading zero: it counts only for where the point stands.
            self.point -= i32::from(!whole);
            return;
        }
        self.digits[self.count] = digit;
        self.count += 1;
        self.point += i32::from(whole);
    }

    fn layout(&self) -> String {
        let Ok(digits) = std::str::from_utf8(&self.digits[..self.count]) else {
            unreachable!("only ASCII digits are pushed");
        };
        if digits.is_empty() {
            return "0".to_owned();
        }
        let sign = if self.negative { "-" } else { "" };
        match usize::try_from(self.point) {
            Ok(point) if self.is_written_out(point) => format!("{sign}{digits}{}", "0".repeat(point - self.count)),
            Ok(point @ 1..=21) => format!("{sign}{}.{}", &digits[..point], &digits[point..]),
            _ if (-5..=0).contains(&self.point) => {
                format!("{sign}0.{}{digits}", "0".repeat(self.point.unsigned_abs() as usize))
            }
            _ => self.with_exponent(sign, digits),
        }
    }

    /// Whether a whole number is written without an exponent. See the module's documentation.
    fn is_written_out(&self, point: usize) -> bool {
        let longest = if self.count > DOUBLE_DIGITS { MAX_TOKEN - usize::from(self.negative) } else { 21 };
        self.count <= point && point <= longest
    }

    fn with_exponent(&self, sign: &str, digits: &str) -> String {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        format!("{sign}{first}{point}{rest}e{:+}", self.point - 1)
    }
}

fn written_exponent(text: &str) -> Result<i32, Unfit> {
    match text.parse::<i32>() {
        Ok(exponent) if (-MAX_EXPONENT..=MAX_EXPONENT).contains(&exponent) => Ok(exponent),
        _ => Err(Unfit::OutOfRange),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(token: &str) -> String {
        Number::from_token(token).map_or_else(|_| "out of range".to_owned(), |number| number.to_string())
    }

    #[test]
    fn equal_values_have_equal_text() {
        for (tokens, expected) in [
            (&["1", "1.0", "1e0", "10e-1", "0.1e1", "1.000"][..], "1"),
            (&["0", "-0", "0.0", "-0.0e5", "0e-308"], "0"),
            (&["9007199254740993", "9007199254740993.0", "9.007199254740993e15"], "9007199254740993"),
            (&["1e16", "10000000000000000"], "10000000000000000"),
            (&["1e21", "1000000000000000000000"], "1e+21"),
            (&["1e20", "100000000000000000000"], "100000000000000000000"),
            (&["0.000001", "1e-6", "1E-6"], "0.000001"),
            (&["0.0000001", "1e-7"], "1e-7"),
            (&["-12.50", "-1.25e1", "-1250e-2"], "-12.5"),
            (&["1.5e308", "15e307"], "1.5e+308"),
        ] {
            for token in tokens {
                assert_eq!(text(token), expected, "{token}");
            }
        }
    }

    #[test]
    fn long_whole_numbers_keep_their_digits() {
        let id = "340282366920938463463374607431768211457";
        assert_eq!(text(id), id);
        assert_eq!(text("3.40282366920938463463374607431768211457e38"), id);
        assert_eq!(text("-1000000000000000001e109"), "-1.000000000000000001e+127");
        assert_eq!(text("123456789012345678e200"), "1.23456789012345678e+217");
        assert_eq!(text("1234567890123456789012.5"), "1.2345678901234567890125e+21");
    }

    #[test]
    fn exponents_beyond_those_of_a_double_are_refused() {
        for token in ["1e309", "1e-309", "0e309", "10e308", "0.1e-308", "1e99999999999999999999", "5e-324"] {
            assert_eq!(text(token), "out of range", "{token}");
        }
        assert_eq!(text("1e-308"), "1e-308");
        assert_eq!(text("1e+0000000308"), "1e+308");
    }

    #[test]
    fn what_a_typed_tool_would_round() {
        let rounds = |token: &str| Number::from_token(token).is_ok_and(|number| number.would_round());
        for token in
            ["18446744073709551617", "-9223372036854775809", "1.8e308", "340282366920938463463374607431768211457"]
        {
            assert!(rounds(token), "{token}");
        }
        for token in ["18446744073709551615", "-9223372036854775808", "6.02e23", "1e20", "1e308", "0.1", "1.5e-7"] {
            assert!(!rounds(token), "{token}");
        }
    }
}
