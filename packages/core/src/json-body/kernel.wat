;; Finds every value of a JSON text (RFC 8259) in one pass, and checks all of its grammar but for the UTF-8 in strings.
;;
;; Memory, in bytes (kernel.ts has the same numbers):
;;     0 .. 255   what an escape stands for, by the character behind the backslash; 0 for none
;;   256 ..       the text, and at least 64 zeros behind it: a zero ends whatever it stands in
;;   behind them  what strings stand for, each as far from the text's own place as the others, and 64 bytes more
;;   behind them  one node of 16 bytes for each value and each key, in the order in which they begin:
;;      +0  kind: 1 object, 2 array, 3 number, 4 true, 5 false, 6 null, 8 string, 10 key; and 1 more for a string or a key
;;          with escapes
;;      +4  where it begins, from the text's beginning; a string at its quote
;;      +8  where it ends, behind its last character
;;     +12  of a string: bytes of what it stands for, in UTF-8; of an object or array: the number of the node behind it,
;;          and while it is open, the number of the one that it is in
;;
;; Strings are read and written 16 bytes at a time, so behind what one stands for up to 15 bytes mean nothing.
(module
  (memory (export "memory") 4 32768)
  (data (i32.const 0x22) "\22")
  (data (i32.const 0x2f) "\2f")
  (data (i32.const 0x5c) "\5c")
  (data (i32.const 0x62) "\08")
  (data (i32.const 0x66) "\0c")
  (data (i32.const 0x6e) "\0a")
  (data (i32.const 0x72) "\0d")
  (data (i32.const 0x74) "\09")

  ;; Bytes by which the last string is longer than what it stands for.
  (global $saved (mut i32) (i32.const 0))
  ;; From a string to where what it stands for goes.
  (global $shift (mut i32) (i32.const 0))
  ;; Whether some key may spell `__proto__`.
  (global $isSuspect (export "isSuspect") (mut i32) (i32.const 0))

  (func $skipSpace (param $at i32) (result i32)
    (local $code i32)
    (loop $more
      (local.set $code (i32.load8_u (local.get $at)))
      (if (i32.or
            (i32.or (i32.eq (local.get $code) (i32.const 0x20)) (i32.eq (local.get $code) (i32.const 0x0a)))
            (i32.or (i32.eq (local.get $code) (i32.const 0x0d)) (i32.eq (local.get $code) (i32.const 0x09))))
        (then
          (local.set $at (i32.add (local.get $at) (i32.const 1)))
          (br $more))))
    (local.get $at))

  ;; A hexadecimal digit's value, or -1.
  (func $digit (param $at i32) (result i32)
    (local $code i32)
    (local.set $code (i32.load8_u (local.get $at)))
    (if (i32.lt_u (i32.sub (local.get $code) (i32.const 0x30)) (i32.const 10))
      (then (return (i32.sub (local.get $code) (i32.const 0x30)))))
    (local.set $code (i32.sub (i32.or (local.get $code) (i32.const 0x20)) (i32.const 0x61)))
    (if (i32.lt_u (local.get $code) (i32.const 6)) (then (return (i32.add (local.get $code) (i32.const 10)))))
    (i32.const -1))

  ;; The value of four hexadecimal digits; negative when one of them is none.
  (func $hex (param $at i32) (result i32)
    (i32.or
      (i32.or
        (i32.shl (call $digit (local.get $at)) (i32.const 12))
        (i32.shl (call $digit (i32.add (local.get $at) (i32.const 1))) (i32.const 8)))
      (i32.or
        (i32.shl (call $digit (i32.add (local.get $at) (i32.const 2))) (i32.const 4))
        (call $digit (i32.add (local.get $at) (i32.const 3))))))

  ;; The character that \u at `at` begins: one code unit, or two that belong together. -1 when it is no escape.
  (func $unicode (param $at i32) (result i32)
    (local $high i32) (local $low i32)
    (local.set $high (call $hex (i32.add (local.get $at) (i32.const 2))))
    (if (i32.ne (i32.and (local.get $high) (i32.const 0xfffffc00)) (i32.const 0xd800))
      (then (return (local.get $high))))
    (if (i32.ne (i32.load16_u offset=6 align=1 (local.get $at)) (i32.const 0x755c))
      (then (return (local.get $high))))
    (local.set $low (call $hex (i32.add (local.get $at) (i32.const 8))))
    (if (i32.ne (i32.and (local.get $low) (i32.const 0xfffffc00)) (i32.const 0xdc00))
      (then (return (local.get $high))))
    (i32.add
      (i32.const 0x10000)
      (i32.or
        (i32.shl (i32.and (local.get $high) (i32.const 0x3ff)) (i32.const 10))
        (i32.and (local.get $low) (i32.const 0x3ff)))))

  ;; Writes a character in UTF-8, half a pair as U+FFFD, and returns where it ends.
  (func $encode (param $code i32) (param $to i32) (result i32)
    (if (i32.lt_u (local.get $code) (i32.const 0x80))
      (then
        (i32.store8 (local.get $to) (local.get $code))
        (return (i32.add (local.get $to) (i32.const 1)))))
    (if (i32.lt_u (local.get $code) (i32.const 0x800))
      (then
        (i32.store8 (local.get $to) (i32.or (i32.const 0xc0) (i32.shr_u (local.get $code) (i32.const 6))))
        (i32.store8 offset=1 (local.get $to) (call $tail (local.get $code)))
        (return (i32.add (local.get $to) (i32.const 2)))))
    (if (i32.eq (i32.and (local.get $code) (i32.const 0xfffff800)) (i32.const 0xd800))
      (then (local.set $code (i32.const 0xfffd))))
    (if (i32.lt_u (local.get $code) (i32.const 0x10000))
      (then
        (i32.store8 (local.get $to) (i32.or (i32.const 0xe0) (i32.shr_u (local.get $code) (i32.const 12))))
        (i32.store8 offset=1 (local.get $to) (call $tail (i32.shr_u (local.get $code) (i32.const 6))))
        (i32.store8 offset=2 (local.get $to) (call $tail (local.get $code)))
        (return (i32.add (local.get $to) (i32.const 3)))))
    (i32.store8 (local.get $to) (i32.or (i32.const 0xf0) (i32.shr_u (local.get $code) (i32.const 18))))
    (i32.store8 offset=1 (local.get $to) (call $tail (i32.shr_u (local.get $code) (i32.const 12))))
    (i32.store8 offset=2 (local.get $to) (call $tail (i32.shr_u (local.get $code) (i32.const 6))))
    (i32.store8 offset=3 (local.get $to) (call $tail (local.get $code)))
    (i32.add (local.get $to) (i32.const 4)))

  ;; The last six bits, as a byte that is not a character's first.
  (func $tail (param $code i32) (result i32)
    (i32.or (i32.const 0x80) (i32.and (local.get $code) (i32.const 0x3f))))

  ;; From the opening quote to behind the closing one, or 0 when there is something wrong. Writes what it stands for.
  (func $string (param $at i32) (result i32)
    (local $bytes v128) (local $special i32) (local $code i32) (local $to i32) (local $begin i32)
    (local.set $at (i32.add (local.get $at) (i32.const 1)))
    (local.set $begin (local.get $at))
    (local.set $to (i32.add (local.get $at) (global.get $shift)))
    (loop $more
      (local.set $bytes (v128.load align=1 (local.get $at)))
      (v128.store align=1 (local.get $to) (local.get $bytes))
      (local.set $special
        (i8x16.bitmask
          (v128.or
            (v128.or
              (i8x16.eq (local.get $bytes) (i8x16.splat (i32.const 0x22)))
              (i8x16.eq (local.get $bytes) (i8x16.splat (i32.const 0x5c))))
            (i8x16.lt_u (local.get $bytes) (i8x16.splat (i32.const 0x20))))))
      (if (i32.eqz (local.get $special))
        (then
          (local.set $at (i32.add (local.get $at) (i32.const 16)))
          (local.set $to (i32.add (local.get $to) (i32.const 16)))
          (br $more)))
      (local.set $special (i32.ctz (local.get $special)))
      (local.set $at (i32.add (local.get $at) (local.get $special)))
      (local.set $to (i32.add (local.get $to) (local.get $special)))
      (local.set $code (i32.load8_u (local.get $at)))
      (if (i32.eq (local.get $code) (i32.const 0x22))
        (then
          (global.set $saved
            (i32.sub
              (i32.sub (local.get $at) (local.get $begin))
              (i32.sub (local.get $to) (i32.add (local.get $begin) (global.get $shift)))))
          (return (i32.add (local.get $at) (i32.const 1)))))
      (if (i32.ne (local.get $code) (i32.const 0x5c)) (then (return (i32.const 0))))
      (local.set $special (i32.load8_u offset=1 (local.get $at)))
      (local.set $code (i32.load8_u (local.get $special)))
      (if (local.get $code)
        (then
          (i32.store8 (local.get $to) (local.get $code))
          (local.set $to (i32.add (local.get $to) (i32.const 1)))
          (local.set $at (i32.add (local.get $at) (i32.const 2)))
          (br $more)))
      (if (i32.ne (local.get $special) (i32.const 0x75)) (then (return (i32.const 0))))
      (local.set $code (call $unicode (local.get $at)))
      (if (i32.lt_s (local.get $code) (i32.const 0)) (then (return (i32.const 0))))
      (local.set $at
        (i32.add (local.get $at)
          (select (i32.const 12) (i32.const 6) (i32.ge_u (local.get $code) (i32.const 0x10000)))))
      (local.set $to (call $encode (local.get $code) (local.get $to)))
      (br $more))
    (unreachable))

  (func $skipDigits (param $at i32) (result i32)
    (loop $more
      (if (i32.lt_u (i32.sub (i32.load8_u (local.get $at)) (i32.const 0x30)) (i32.const 10))
        (then
          (local.set $at (i32.add (local.get $at) (i32.const 1)))
          (br $more))))
    (local.get $at))

  ;; Behind the number that begins at `at`, or 0 when there is none.
  (func $number (param $at i32) (result i32)
    (local $code i32) (local $from i32)
    (if (i32.eq (i32.load8_u (local.get $at)) (i32.const 0x2d))
      (then (local.set $at (i32.add (local.get $at) (i32.const 1)))))
    (local.set $code (i32.sub (i32.load8_u (local.get $at)) (i32.const 0x30)))
    (if (i32.ge_u (local.get $code) (i32.const 10)) (then (return (i32.const 0))))
    (local.set $at (i32.add (local.get $at) (i32.const 1)))
    (if (local.get $code) (then (local.set $at (call $skipDigits (local.get $at)))))
    (if (i32.eq (i32.load8_u (local.get $at)) (i32.const 0x2e))
      (then
        (local.set $from (i32.add (local.get $at) (i32.const 1)))
        (local.set $at (call $skipDigits (local.get $from)))
        (if (i32.eq (local.get $at) (local.get $from)) (then (return (i32.const 0))))))
    (if (i32.eq (i32.or (i32.load8_u (local.get $at)) (i32.const 0x20)) (i32.const 0x65))
      (then
        (local.set $from (i32.add (local.get $at) (i32.const 1)))
        (local.set $code (i32.load8_u (local.get $from)))
        (if (i32.or (i32.eq (local.get $code) (i32.const 0x2b)) (i32.eq (local.get $code) (i32.const 0x2d)))
          (then (local.set $from (i32.add (local.get $from) (i32.const 1)))))
        (local.set $at (call $skipDigits (local.get $from)))
        (if (i32.eq (local.get $at) (local.get $from)) (then (return (i32.const 0))))))
    (local.get $at))

  ;; How many nodes the `bytes` of text have, of which the first goes to `nodes`, and what its strings stand for `shift`
  ;; behind them; -1 when the text is no JSON, -2 when it
  ;; nests deeper than `maxDepth`, -3 when there is no memory for its nodes.
  (func (export "scan") (param $bytes i32) (param $shift i32) (param $nodes i32) (param $maxDepth i32)
    (result i32)
    (local $at i32) (local $code i32) (local $node i32) (local $count i32) (local $depth i32)
    ;; The node of the innermost open object or array, with its kind; 0 outside of all.
    (local $open i32) (local $openKind i32)
    (local $end i32) (local $limit i32) (local $wantsKey i32)
    (global.set $isSuspect (i32.const 0))
    (global.set $shift (local.get $shift))
    (local.set $end (i32.add (i32.const 256) (local.get $bytes)))
    (local.set $limit (i32.shl (memory.size) (i32.const 16)))
    (local.set $node (local.get $nodes))
    (local.set $at (i32.const 256))
    (loop $next
      (local.set $at (call $skipSpace (local.get $at)))
      (local.set $code (i32.load8_u (local.get $at)))
      (if (i32.gt_u (i32.add (local.get $node) (i32.const 16)) (local.get $limit))
        (then
          ;; By a quarter more, and by one page at least.
          (if (i32.eq
                (memory.grow (i32.add (i32.shr_u (memory.size) (i32.const 2)) (i32.const 1)))
                (i32.const -1))
            (then (return (i32.const -3))))
          (local.set $limit (i32.shl (memory.size) (i32.const 16)))))
      (i32.store offset=4 (local.get $node) (i32.sub (local.get $at) (i32.const 256)))
      (local.set $count (i32.add (local.get $count) (i32.const 1)))
      (if (i32.eq (local.get $code) (i32.const 0x22))
        (then
          (local.set $at (call $string (local.get $at)))
          (if (i32.eqz (local.get $at)) (then (return (i32.const -1))))
          (i32.store (local.get $node)
            (i32.add
              (i32.add (i32.const 8) (i32.shl (local.get $wantsKey) (i32.const 1)))
              (i32.ne (global.get $saved) (i32.const 0))))
          (i32.store offset=8 (local.get $node) (i32.sub (local.get $at) (i32.const 256)))
          (i32.store offset=12 (local.get $node)
            (i32.sub
              (i32.sub (local.get $at) (i32.const 258))
              (i32.add (i32.load offset=4 (local.get $node)) (global.get $saved))))
          (if (local.get $wantsKey)
            (then
              (local.set $wantsKey (i32.const 0))
              (if (i32.eq (i32.load offset=12 (local.get $node)) (i32.const 9))
                (then
                  ;; `__proto_`, or escapes that would have to be read.
                  (if (i32.or
                        (i64.eq
                          (i64.load align=1 (i32.add (i32.load offset=4 (local.get $node)) (i32.const 257)))
                          (i64.const 0x5f6f746f72705f5f))
                        (i32.ne (global.get $saved) (i32.const 0)))
                    (then (global.set $isSuspect (i32.const 1))))))
              (local.set $node (i32.add (local.get $node) (i32.const 16)))
              (local.set $at (call $skipSpace (local.get $at)))
              (if (i32.ne (i32.load8_u (local.get $at)) (i32.const 0x3a)) (then (return (i32.const -1))))
              (local.set $at (i32.add (local.get $at) (i32.const 1)))
              (br $next))))
        (else
          (if (local.get $wantsKey) (then (return (i32.const -1))))
          ;; `[` and `{` differ in one bit; what closes each comes two behind it.
          (if (i32.eq (i32.or (local.get $code) (i32.const 0x20)) (i32.const 0x7b))
            (then
              (local.set $depth (i32.add (local.get $depth) (i32.const 1)))
              (if (i32.gt_u (local.get $depth) (local.get $maxDepth)) (then (return (i32.const -2))))
              (i32.store offset=12 (local.get $node) (local.get $open))
              (local.set $open (local.get $node))
              (local.set $openKind
                (select (i32.const 1) (i32.const 2) (i32.eq (local.get $code) (i32.const 0x7b))))
              (i32.store (local.get $node) (local.get $openKind))
              (local.set $node (i32.add (local.get $node) (i32.const 16)))
              (local.set $at (call $skipSpace (i32.add (local.get $at) (i32.const 1))))
              (if (i32.ne (i32.load8_u (local.get $at)) (i32.add (local.get $code) (i32.const 2)))
                (then
                  (local.set $wantsKey (i32.eq (local.get $openKind) (i32.const 1)))
                  (br $next)))
              ;; It is empty: its end comes next.
              (local.set $node (i32.sub (local.get $node) (i32.const 16))))
            (else
              (block $known
                (if (i32.or
                      (i32.lt_u (i32.sub (local.get $code) (i32.const 0x30)) (i32.const 10))
                      (i32.eq (local.get $code) (i32.const 0x2d)))
                  (then
                    (local.set $at (call $number (local.get $at)))
                    (if (i32.eqz (local.get $at)) (then (return (i32.const -1))))
                    (i32.store (local.get $node) (i32.const 3))
                    (br $known)))
                ;; true, null, and `alse` of false, as little-endian words
                (if (i32.eq (i32.load align=1 (local.get $at)) (i32.const 0x65757274))
                  (then
                    (i32.store (local.get $node) (i32.const 4))
                    (local.set $at (i32.add (local.get $at) (i32.const 4)))
                    (br $known)))
                (if (i32.eq (i32.load align=1 (local.get $at)) (i32.const 0x6c6c756e))
                  (then
                    (i32.store (local.get $node) (i32.const 6))
                    (local.set $at (i32.add (local.get $at) (i32.const 4)))
                    (br $known)))
                (if (i32.and
                      (i32.eq (local.get $code) (i32.const 0x66))
                      (i32.eq (i32.load offset=1 align=1 (local.get $at)) (i32.const 0x65736c61)))
                  (then
                    (i32.store (local.get $node) (i32.const 5))
                    (local.set $at (i32.add (local.get $at) (i32.const 5)))
                    (br $known)))
                (return (i32.const -1)))
              (i32.store offset=8 (local.get $node) (i32.sub (local.get $at) (i32.const 256)))))))
      ;; A value has ended, or an empty object or array is about to.
      (local.set $node (i32.add (local.get $node) (i32.const 16)))
      (loop $after
        (if (i32.eqz (local.get $open))
          (then
            (return
              (select
                (local.get $count)
                (i32.const -1)
                (i32.eq (call $skipSpace (local.get $at)) (local.get $end))))))
        (local.set $at (call $skipSpace (local.get $at)))
        (local.set $code (i32.load8_u (local.get $at)))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (if (i32.eq (local.get $code) (i32.const 0x2c))
          (then
            (local.set $wantsKey (i32.eq (local.get $openKind) (i32.const 1)))
            (br $next)))
        (if (i32.ne
              (local.get $code)
              (select (i32.const 0x7d) (i32.const 0x5d) (i32.eq (local.get $openKind) (i32.const 1))))
          (then (return (i32.const -1))))
        (local.set $depth (i32.sub (local.get $depth) (i32.const 1)))
        (i32.store offset=8 (local.get $open) (i32.sub (local.get $at) (i32.const 256)))
        (local.set $code (i32.load offset=12 (local.get $open)))
        (i32.store offset=12 (local.get $open) (local.get $count))
        (local.set $open (local.get $code))
        (if (local.get $open) (then (local.set $openKind (i32.load (local.get $open)))))
        (br $after)))
    (unreachable)))
