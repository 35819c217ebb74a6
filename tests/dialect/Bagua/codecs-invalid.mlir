// RUN: bagua-opt %s --split-input-file --verify-diagnostics
// Refusals of the built-in codecs; each says what it expects and what it got.

// minmax_reference_C1
// expected-error@+1 {{expects block to be a multiple of 8 in 8..65536, got 0}}
#negative_minmax_reference_block = #bagua.minmax_reference<block = 0>

// -----

// qsgd_C1
// expected-error@+1 {{expects levels in 1..127, got 0}}
#negative_qsgd_no_levels = #bagua.qsgd<levels = 0, block = 512>

// -----

// qsgd_C1
// expected-error@+1 {{expects levels in 1..127, got 128}}
#negative_qsgd_many_levels = #bagua.qsgd<levels = 128, block = 512>

// -----

// qsgd_C2
// expected-error@+1 {{expects block to be a multiple of 8 in 8..65536, got 100}}
#negative_qsgd_block = #bagua.qsgd<levels = 1, block = 100>

// -----

// expected-error@+2 {{expected one of [max, l2] for what bounds the magnitudes of a block, got: l1}}
// expected-error@+1 {{failed to parse Bagua_QsgdAttr parameter 'norm'}}
#negative_qsgd_norm = #bagua.qsgd<levels = 1, block = 512, norm = l1>

// -----

// ternary_C1
// expected-error@+1 {{expects block to be a multiple of 8 in 8..65536, got 4}}
#negative_ternary_block = #bagua.ternary<block = 4>

// -----

// sign_C1
// expected-error@+1 {{expects block to be a multiple of 8 in 8..65536, got 131072}}
#negative_sign_block = #bagua.sign<block = 131072>

// -----

// topk_C1
// expected-error@+1 {{expects block to be a multiple of 8 in 8..4096, got 8192}}
#negative_topk_block = #bagua.topk<k = 1, block = 8192>

// -----

// topk_C2
// expected-error@+1 {{expects k in 1..64, the block, got 65}}
#negative_topk_many = #bagua.topk<k = 65, block = 64>

// -----

// randk_C1
// expected-error@+1 {{expects block to be a multiple of 8 in 8..4096, got 12}}
#negative_randk_block = #bagua.randk<k = 1, block = 12>

// -----

// randk_C2
// expected-error@+1 {{expects k in 1..64, the block, got 0}}
#negative_randk_none = #bagua.randk<k = 0, block = 64>
