//! Random bytes.

use crate::p1::*;

crate::cases![
    big_random_buf,
    random_get_non_zero_length,
    random_get_zero_length,
];

fn big_random_buf(_: Fd) {
    let mut bytes = vec![0; 100_000];
    works(fill_random(&mut bytes));
    for (number, piece) in bytes.chunks(1_000).enumerate() {
        let different: std::collections::BTreeSet<u8> = piece.iter().copied().collect();
        assert!(different.len() > 100, "piece {number}: {}", different.len());
    }
}

fn random_get_non_zero_length(_: Fd) {
    let (mut one, mut other) = ([0; 32], [0; 32]);
    works(fill_random(&mut one));
    works(fill_random(&mut other));
    assert_ne!(one, [0; 32]);
    assert_ne!(one, other);
}

fn random_get_zero_length(_: Fd) {
    works(fill_random(&mut []));
}
