// RUN: bagua-opt %s --split-input-file --verify-diagnostics
// Refusals of codecs that a file defines, each where it is wrong; and of codecs that no file defines.

// codec_C1
// expected-error@+1 {{expects block to be a multiple of 8 in 8..65536, got 60}}
bagua.codec @negative_block block(60) header(f32) code(i4) {
  stats(%x) { max %x }
  encode(%x, %h) { %x / %h }
  decode(%q, %h) { %q * %h }
}

// -----

// codec_C1
// expected-error@+1 {{expects block to be a multiple of 8 in 8..65536, got 65544}}
bagua.codec @negative_large_block block(65544) header(f32) code(i4) {
  stats(%x) { max %x }
  encode(%x, %h) { %x / %h }
  decode(%q, %h) { %q * %h }
}

// -----

// codec_C2
// expected-error@+1 {{expects headers of type f32, got 'f16'}}
bagua.codec @negative_header_type block(64) header(f16) code(i4) {
  stats(%x) { max %x }
  encode(%x, %h) { %x / %h }
  decode(%q, %h) { %q * %h }
}

// -----

// codec_C2
// expected-error@+1 {{expects 1..4 headers, got 5}}
bagua.codec @negative_five_headers block(64) header(f32, f32, f32, f32, f32) code(i4) {
  stats(%x) { max %x }
  encode(%x, %h) { %x / %h }
  decode(%q, %h) { %q * %h }
}

// -----

// codec_C2
// expected-error@+1 {{expects 1..4 headers, got 0}}
bagua.codec @negative_no_header block(64) header() code(i4) {
  stats(%x) { max %x }
  encode(%x, %h) { %x / %h }
  decode(%q, %h) { %q * %h }
}

// -----

// codec_C3
// expected-error@+1 {{expects codes i1..i16 or u1..u16, got 'f8'}}
bagua.codec @negative_code_type block(64) header(f32) code(f8) {
  stats(%x) { max %x }
  encode(%x, %h) { %x / %h }
  decode(%q, %h) { %q * %h }
}

// -----

// codec_C3
// expected-error@+1 {{expects codes i1..i16 or u1..u16, got u17}}
bagua.codec @negative_code_bits block(64) header(f32) code(u17) {
  stats(%x) { max %x }
  encode(%x, %h) { %x / %h }
  decode(%q, %h) { %q * %h }
}

// -----

// codec_C3
// expected-error@+1 {{expects codes i1..i16 or u1..u16, got i0}}
bagua.codec @negative_code_no_bits block(64) header(f32) code(i0) {
  stats(%x) { max %x }
  encode(%x, %h) { %x / %h }
  decode(%q, %h) { %q * %h }
}

// -----

// codec_C4
bagua.codec @negative_no_reduction block(64) header(f32) code(i4) {
  // expected-error@+1 {{expects max, min or sum before each value of stats: how it is reduced over the block}}
  stats(%x) { abs(%x) }
  encode(%x, %h) { %x / %h }
  decode(%q, %h) { %q * %h }
}

// -----

// codec_C4
// expected-error@+1 {{stats expects 1..16 values, got 17}}
bagua.codec @negative_stats_count block(64) header(f32) code(i4) {
  stats(%x) { max %x, max %x, max %x, max %x, max %x, max %x, max %x, max %x, max %x, max %x, max %x, max %x, max %x, max %x, max %x, max %x, max %x }
  headers(%s) { %s }
  encode(%x, %h) { %x / %h }
  decode(%q, %h) { %q * %h }
}

// -----

// codec_C5
bagua.codec @negative_headers_missing block(64) header(f32, f32) code(i4) {
  stats(%x) { max %x }
  // expected-error@+1 {{expects `headers(…) { … }` before encode: stats has 1 value, and a block 2 headers}}
  encode(%x, %h, %k) { %x }
  decode(%q, %h) { %q * %h }
}

// -----

// codec_C5
bagua.codec @negative_stats_of_two block(64) header(f32) code(i4) {
  // expected-error@+1 {{stats expects 1 argument, the element, got 2}}
  stats(%x, %y) { max %x }
  encode(%x, %h) { %x / %h }
  decode(%q, %h) { %q * %h }
}

// -----

// codec_C5
bagua.codec @negative_headers_of_one block(64) header(f32) code(i4) {
  stats(%x) { max %x, min %x }
  // expected-error@+1 {{headers expects 2 arguments, the reduced values of stats, got 1}}
  headers(%hi) { %hi }
  encode(%x, %h) { %x / %h }
  decode(%q, %h) { %q * %h }
}

// -----

// codec_C5
bagua.codec @negative_header_values block(64) header(f32, f32) code(i4) {
  stats(%x) { max %x }
  // expected-error@+1 {{headers expects 2 values, one for each header, got 1}}
  headers(%s) { %s }
  encode(%x, %h, %k) { %x }
  decode(%q, %h, %k) { %q }
}

// -----

// codec_C5
bagua.codec @negative_encode_header block(64) header(f32) code(i4) {
  stats(%x) { max %x }
  // expected-error@+1 {{encode expects 2 arguments, the element and the headers, got 1}}
  encode(%x) { %x }
  decode(%q, %h) { %q * %h }
}

// -----

// codec_C5
bagua.codec @negative_decode_values block(64) header(f32) code(i4) {
  stats(%x) { max %x }
  encode(%x, %h) { %x / %h }
  // expected-error@+1 {{decode expects 1 value, got 2}}
  decode(%q, %h) { %q, %h }
}

// -----

// codec_C5
bagua.codec @negative_foreign_value block(64) header(f32) code(i4) {
  stats(%x) { max %x }
  encode(%x, %h) { %x / %h }
  // expected-error@+1 {{expects an argument of decode, got %m: a codec sees its arguments and numbers only}}
  decode(%q, %h) { %q * %m }
}

// -----

// codec_C6
bagua.codec @negative_condition block(64) header(f32) code(i4) {
  stats(%x) { max %x }
  // expected-error@+1 {{encode expects an expression that is a number, got a condition: use select}}
  encode(%x, %h) { %x < %h }
  decode(%q, %h) { %q * %h }
}

// -----

// codec_C6
bagua.codec @negative_number block(64) header(f32) code(i4) {
  // expected-error@+1 {{stats expects a condition as operand 1 of `select`, got a number: compare it, as with `> 0.0`}}
  stats(%x) { max select(%x, 1.0, 2.0) }
  encode(%x, %h) { %x / %h }
  decode(%q, %h) { %q * %h }
}

// -----

// codec_C7
bagua.codec @negative_instructions block(64) header(f32) code(i4) {
  stats(%x) { max %x }
  // expected-error@+1 {{encode expects at most 240 instructions, got 241: move what is the same for all elements to headers}}
  encode(%x, %h) { %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x + %x }
  decode(%q, %h) { %q * %h }
}

// -----

// codec_C7
bagua.codec @negative_infinite block(64) header(f32) code(i4) {
  stats(%x) { max %x }
  // expected-error@+1 {{encode expects finite constants}}
  encode(%x, %h) { %x * 1.0e400 }
  decode(%q, %h) { %q * %h }
}

// -----

// codec_C8
// expected-error@+1 {{expects an i64 as 'block', got 8 : i32}}
"bagua.codec"() {sym_name = "negative_no_block", program = {
  block = 8 : i32, header_count = 1 : i64, code_bits = 4 : i64, signed_codes = 1 : i64, reductions = array<i64: 0>,
  stats = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 1 : i64, broadcast = array<i64: 0>},
  headers = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 1 : i64, broadcast = array<i64: 0>},
  encode = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 2 : i64, broadcast = array<i64: 0, 1>},
  decode = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 2 : i64, broadcast = array<i64: 0, 1>}}} : () -> ()

// -----

// codec_C8
// expected-error@+1 {{expects block, header_count, code_bits, signed_codes, stats, reductions (array<i64>), headers, encode and decode, got}}
"bagua.codec"() {sym_name = "negative_unknown_entry", program = {
  block = 8 : i64, header_count = 1 : i64, code_bits = 4 : i64, signed_codes = 1 : i64, reductions = array<i64: 0>,
  stats = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 1 : i64, broadcast = array<i64: 0>},
  headers = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 1 : i64, broadcast = array<i64: 0>},
  encode = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 2 : i64, broadcast = array<i64: 0, 1>},
  decode = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 2 : i64, broadcast = array<i64: 0, 1>}, more = 1 : i64}} : () -> ()

// -----

// codec_C4
// expected-error@+1 {{expects reductions 0 (max), 1 (min) or 2 (sum), got 3}}
"bagua.codec"() {sym_name = "negative_reduction", program = {
  block = 8 : i64, header_count = 1 : i64, code_bits = 4 : i64, signed_codes = 1 : i64, reductions = array<i64: 3>,
  stats = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 1 : i64, broadcast = array<i64: 0>},
  headers = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 1 : i64, broadcast = array<i64: 0>},
  encode = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 2 : i64, broadcast = array<i64: 0, 1>},
  decode = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 2 : i64, broadcast = array<i64: 0, 1>}}} : () -> ()

// -----

// codec_C4
// expected-error@+1 {{expects a reduction for each of 1 values of stats, got 2}}
"bagua.codec"() {sym_name = "negative_two_reductions", program = {
  block = 8 : i64, header_count = 1 : i64, code_bits = 4 : i64, signed_codes = 1 : i64, reductions = array<i64: 0, 0>,
  stats = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 1 : i64, broadcast = array<i64: 0>},
  headers = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 1 : i64, broadcast = array<i64: 0>},
  encode = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 2 : i64, broadcast = array<i64: 0, 1>},
  decode = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 2 : i64, broadcast = array<i64: 0, 1>}}} : () -> ()

// -----

// codec_C8
// expected-error@+1 {{stats expects a dictionary of code, constants, outputs, inputs and broadcast, whose flags are 1 for headers and 0 else, got 7 : i64}}
"bagua.codec"() {sym_name = "negative_part", program = {
  block = 8 : i64, header_count = 1 : i64, code_bits = 4 : i64, signed_codes = 1 : i64, reductions = array<i64: 0>,
  stats = 7 : i64,
  headers = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 1 : i64, broadcast = array<i64: 0>},
  encode = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 2 : i64, broadcast = array<i64: 0, 1>},
  decode = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 2 : i64, broadcast = array<i64: 0, 1>}}} : () -> ()

// -----

// codec_C8
// expected-error@+1 {{encode expects a dictionary of code, constants, outputs, inputs and broadcast}}
"bagua.codec"() {sym_name = "negative_broadcast", program = {
  block = 8 : i64, header_count = 1 : i64, code_bits = 4 : i64, signed_codes = 1 : i64, reductions = array<i64: 0>,
  stats = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 1 : i64, broadcast = array<i64: 0>},
  headers = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 1 : i64, broadcast = array<i64: 0>},
  encode = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 2 : i64, broadcast = array<i64: 0, 0>},
  decode = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 2 : i64, broadcast = array<i64: 0, 1>}}} : () -> ()

// -----

// codec_C8
// expected-error@+1 {{encode instruction 0 expects operand 1 in 0..1, got 2}}
"bagua.codec"() {sym_name = "negative_operand", program = {
  block = 8 : i64, header_count = 1 : i64, code_bits = 4 : i64, signed_codes = 1 : i64, reductions = array<i64: 0>,
  stats = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 1 : i64, broadcast = array<i64: 0>},
  headers = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 1 : i64, broadcast = array<i64: 0>},
  encode = {code = array<i64: 0, 2, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 2 : i64, broadcast = array<i64: 0, 1>},
  decode = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 2 : i64, broadcast = array<i64: 0, 1>}}} : () -> ()

// -----

// codec_C8
// expected-error@+1 {{encode expects code of 4 numbers for each instruction, at least one, got 3}}
"bagua.codec"() {sym_name = "negative_code_length", program = {
  block = 8 : i64, header_count = 1 : i64, code_bits = 4 : i64, signed_codes = 1 : i64, reductions = array<i64: 0>,
  stats = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 1 : i64, broadcast = array<i64: 0>},
  headers = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 1 : i64, broadcast = array<i64: 0>},
  encode = {code = array<i64: 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 2 : i64, broadcast = array<i64: 0, 1>},
  decode = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 2 : i64, broadcast = array<i64: 0, 1>}}} : () -> ()

// -----

// codec_C8
// expected-error@+1 {{encode expects the number of an instruction, below 1, as its value, got 1}}
"bagua.codec"() {sym_name = "negative_output", program = {
  block = 8 : i64, header_count = 1 : i64, code_bits = 4 : i64, signed_codes = 1 : i64, reductions = array<i64: 0>,
  stats = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 1 : i64, broadcast = array<i64: 0>},
  headers = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 1 : i64, broadcast = array<i64: 0>},
  encode = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 1>, inputs = 2 : i64, broadcast = array<i64: 0, 1>},
  decode = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 2 : i64, broadcast = array<i64: 0, 1>}}} : () -> ()

// -----

// codec_C7
// expected-error@+1 {{encode expects at most 256 constants, got 257: move what is the same for all elements to headers}}
"bagua.codec"() {sym_name = "negative_constants", program = {
  block = 8 : i64, header_count = 1 : i64, code_bits = 4 : i64, signed_codes = 1 : i64, reductions = array<i64: 0>,
  stats = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 1 : i64, broadcast = array<i64: 0>},
  headers = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 1 : i64, broadcast = array<i64: 0>},
  encode = {code = array<i64: 0, 0, 0, 0>, constants = array<f64: 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0>, outputs = array<i64: 0>, inputs = 2 : i64, broadcast = array<i64: 0, 1>},
  decode = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 2 : i64, broadcast = array<i64: 0, 1>}}} : () -> ()

// -----

// codec_C7
// expected-error@+1 {{encode expects an expression of at most 4096 terms: move what is the same for all elements to headers}}
"bagua.codec"() {sym_name = "negative_terms", program = {
  block = 8 : i64, header_count = 1 : i64, code_bits = 4 : i64, signed_codes = 1 : i64, reductions = array<i64: 0>,
  stats = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 1 : i64, broadcast = array<i64: 0>},
  headers = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 1 : i64, broadcast = array<i64: 0>},
  encode = {code = array<i64: 0, 0, 0, 0, 3, 0, 0, 0, 3, 1, 1, 0, 3, 2, 2, 0, 3, 3, 3, 0, 3, 4, 4, 0, 3, 5, 5, 0, 3, 6, 6, 0, 3, 7, 7, 0, 3, 8, 8, 0, 3, 9, 9, 0, 3, 10, 10, 0, 3, 11, 11, 0, 3, 12, 12, 0>, constants = array<f64>, outputs = array<i64: 13>, inputs = 2 : i64, broadcast = array<i64: 0, 1>},
  decode = {code = array<i64: 0, 0, 0, 0>, constants = array<f64>, outputs = array<i64: 0>, inputs = 2 : i64, broadcast = array<i64: 0, 1>}}} : () -> ()

// -----

// all_reduce_C3
bagua.algorithm @negative_all_reduce_codec {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects a codec of the file, got @nope: define `bagua.codec @nope block(…) header(…) code(…) { … }`}}
    %m = bagua.all_reduce mean %g via #bagua.codec<@nope>
    bagua.update gradient = %m
  }
}

// -----

// encode_C2
bagua.algorithm @negative_encode_codec {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects a codec of the file, got @nope}}
    %q = bagua.encode %g with #bagua.codec<@nope>
    %d = bagua.decode %q : !bagua.packed<#bagua.codec<@nope>, tensor<?xf32, #bagua.bucket>>
    bagua.update gradient = %d
  }
}

// -----

// Neither an algorithm's name nor a function's is a codec's.
bagua.algorithm @negative_no_codec {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects a codec of the file, got @negative_no_codec}}
    %m = bagua.all_reduce mean %g via #bagua.codec<@negative_no_codec>
    bagua.update gradient = %m
  }
}

// -----

// algorithm_C3
bagua.codec @a block(65528) header(f32) code(i4) {
  stats(%x) { max abs(%x) }
  encode(%x, %h) { %x / %h * 7.0 }
  decode(%q, %h) { %q / 7.0 * %h }
}
bagua.codec @b block(65536) header(f32) code(i4) {
  stats(%x) { max abs(%x) }
  encode(%x, %h) { %x / %h * 7.0 }
  decode(%q, %h) { %q / 7.0 * %h }
}
// expected-error@+1 {{expects codec blocks whose least common multiple is at most 16777216}}
bagua.algorithm @negative_grain {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %m = bagua.all_reduce mean %g via #bagua.codec<@a>
    %k = bagua.all_reduce mean %m via #bagua.codec<@b>
    bagua.update gradient = %k
  }
}

// -----

// The program within the attribute is held to the same rules.
// expected-error@+2 {{expects an i64 as 'block', got 1 : i32}}
// expected-error@+1 {{failed to parse Bagua_PackedType parameter 'codec'}}
!negative_linked = !bagua.packed<#bagua.codec<@a, {block = 1 : i32}>, tensor<?xf32, #bagua.bucket>>

// -----

// A codec is of the file.
bagua.algorithm @negative_inside {
  // expected-error@+1 {{expects parent op 'builtin.module'}}
  bagua.codec @a block(64) header(f32) code(i4) {
    stats(%x) { max abs(%x) }
    encode(%x, %h) { %x / %h * 7.0 }
    decode(%q, %h) { %q / 7.0 * %h }
  }
}
