//! Finding what matters in a string, eight bytes at a time.

/// How many bytes come before the first quote, backslash or control character.
///
/// Most of the text is inside strings, so eight bytes are looked at together: `x - 0x01…01` borrows into the top bit
/// of a byte that is zero. Borrows run upwards only, so the lowest top bit that is set is never a false one.
pub(super) fn plain_prefix(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 0xff;
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word;
    let is_byte = |word: u64, byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = (below(word, 0x20) | is_byte(word, b'"') | is_byte(word, b'\\')) & (ONES << 7);
        if found != 0 {
            return index * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    let plain = rest.iter().take_while(|byte| !matches!(byte, 0..0x20 | b'"' | b'\\'));
    words.len() * 8 + plain.count()
}

/// How many bytes two texts have in common at their beginning.
#[inline]
pub(super) fn equal_prefix(a: &[u8], b: &[u8]) -> usize {
    let (a_words, _) = a.as_chunks::<8>();
    let (b_words, _) = b.as_chunks::<8>();
    let mut at = 0;
    for (x, y) in a_words.iter().zip(b_words) {
        let differs = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differs != 0 {
            return at + differs.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + a[at..].iter().zip(&b[at..]).take_while(|(x, y)| x == y).count()
}
