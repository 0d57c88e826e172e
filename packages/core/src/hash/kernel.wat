;; Digests of blocks and the chain over them, in the manner of XXH64 (Collet): four lanes take eight bytes at a time.
;;
;; All arithmetic is modulo 2^64. The bytes of a block are cut into little-endian words of 8 bytes, the last one filled
;; up with zeros. Word j goes to lane j mod 4; lanes start at 0 and have a multiplier each:
;;
;;   fold(x)    = x ^ (x >> 32)
;;   lane k     = fold(lane k ^ word) * K[k]
;;   digest     = fold(fold(fold(lane 0 + lane 1 + lane 2 + lane 3 + (length in bytes + 1) * K[7]) * K[4]) * K[5])
;;   mix(h, c)  = fold((rotate(h, 32) ^ c) * K[6])
;;
;; K is the first eight odd round constants of SHA-512 (FIPS 180-4), here as signed numbers:
;;   K[0]  8158064640168781261   K[1] -5349999486874862801   K[2]  6480981068601479193   K[3] -7908458776815382629
;;   K[4]  8268148722764581231   K[5] -9160688886553864527   K[6] -7215885187991268811   K[7] -1171420211273849373
;;
;; The engine does not inline calls, hence the steps of a lane are written out where every block passes.
;;
;; Memory, in bytes (kernel-memory.ts has the same numbers):
;;        0 ..  65535  input, and what follows it may be read as filling
;;    65536 ..  98303  contents: one digest for each block
;;    98304 .. 131071  chain: one hash for each block
;;   131072 .. 131079  value: the parent of a chain, afterwards its last hash; or the digest of a stream
;;   131080 .. 131111  lanes of a stream
;;   131112 .. 131167  K[0] to K[6]. Constants in the text become ten bytes of code before each use; from here they come
;;                     into registers once, which makes long runs of blocks a tenth faster.
(module
  (memory (export "memory") 3 3)
  (data (i32.const 131112)
    "\cd\65\ef\23\91\44\37\71"
    "\2f\3b\4d\ec\cf\fb\c0\b5"
    "\19\d0\05\b6\f1\11\f1\59"
    "\9b\4f\19\af\a4\82\3f\92"
    "\6f\89\7b\f2\74\5d\be\72"
    "\b1\96\16\3b\fe\b1\de\80"
    "\35\12\c7\25\a7\06\dc\9b")

  (func $lane (param $lane i64) (param $word i64) (param $multiplier i64) (result i64)
    (local.set $lane (i64.xor (local.get $lane) (local.get $word)))
    (i64.mul
      (i64.xor (local.get $lane) (i64.shr_u (local.get $lane) (i64.const 32)))
      (local.get $multiplier)))

  ;; Which bits of a word are input when `bytes` of input are left.
  (func $mask (param $bytes i32) (result i64)
    (if (result i64) (i32.ge_s (local.get $bytes) (i32.const 8))
      (then (i64.const -1))
      (else
        (i64.sub
          (i64.shl (i64.const 1) (i64.extend_i32_u (i32.shl (local.get $bytes) (i32.const 3))))
          (i64.const 1)))))

  ;; What the length adds to the lanes.
  (func $base (param $bytes i64) (result i64)
    (i64.mul (i64.add (local.get $bytes) (i64.const 1)) (i64.const -1171420211273849373)))

  ;; Takes whole stripes of 32 bytes into the lanes in memory.
  (func $takeStripes (param $at i32) (param $end i32)
    (local $v0 i64) (local $v1 i64) (local $v2 i64) (local $v3 i64)
    (if (i32.ge_u (local.get $at) (local.get $end)) (then (return)))
    (local.set $v0 (i64.load (i32.const 131080)))
    (local.set $v1 (i64.load (i32.const 131088)))
    (local.set $v2 (i64.load (i32.const 131096)))
    (local.set $v3 (i64.load (i32.const 131104)))
    (loop $stripes
      (local.set $v0 (i64.xor (local.get $v0) (i64.load align=1 (local.get $at))))
      (local.set $v0
        (i64.mul
          (i64.xor (local.get $v0) (i64.shr_u (local.get $v0) (i64.const 32)))
          (i64.const 8158064640168781261)))
      (local.set $v1 (i64.xor (local.get $v1) (i64.load offset=8 align=1 (local.get $at))))
      (local.set $v1
        (i64.mul
          (i64.xor (local.get $v1) (i64.shr_u (local.get $v1) (i64.const 32)))
          (i64.const -5349999486874862801)))
      (local.set $v2 (i64.xor (local.get $v2) (i64.load offset=16 align=1 (local.get $at))))
      (local.set $v2
        (i64.mul
          (i64.xor (local.get $v2) (i64.shr_u (local.get $v2) (i64.const 32)))
          (i64.const 6480981068601479193)))
      (local.set $v3 (i64.xor (local.get $v3) (i64.load offset=24 align=1 (local.get $at))))
      (local.set $v3
        (i64.mul
          (i64.xor (local.get $v3) (i64.shr_u (local.get $v3) (i64.const 32)))
          (i64.const -7908458776815382629)))
      (local.set $at (i32.add (local.get $at) (i32.const 32)))
      (br_if $stripes (i32.lt_u (local.get $at) (local.get $end))))
    (i64.store (i32.const 131080) (local.get $v0))
    (i64.store (i32.const 131088) (local.get $v1))
    (i64.store (i32.const 131096) (local.get $v2))
    (i64.store (i32.const 131104) (local.get $v3)))

  ;; The digest of what the lanes in memory have taken in, with `rest` bytes (31 at most) after it.
  (func $digest (param $at i32) (param $rest i32) (param $base i64) (result i64)
    (local $v0 i64) (local $v1 i64) (local $v2 i64) (local $v3 i64)
    (local.set $v0 (i64.load (i32.const 131080)))
    (local.set $v1 (i64.load (i32.const 131088)))
    (local.set $v2 (i64.load (i32.const 131096)))
    (local.set $v3 (i64.load (i32.const 131104)))
    (if (local.get $rest)
      (then
        (local.set $v0
          (call $lane
            (local.get $v0)
            (i64.and (i64.load align=1 (local.get $at)) (call $mask (local.get $rest)))
            (i64.const 8158064640168781261)))))
    (if (i32.gt_u (local.get $rest) (i32.const 8))
      (then
        (local.set $v1
          (call $lane
            (local.get $v1)
            (i64.and (i64.load offset=8 align=1 (local.get $at)) (call $mask (i32.sub (local.get $rest) (i32.const 8))))
            (i64.const -5349999486874862801)))))
    (if (i32.gt_u (local.get $rest) (i32.const 16))
      (then
        (local.set $v2
          (call $lane
            (local.get $v2)
            (i64.and
              (i64.load offset=16 align=1 (local.get $at))
              (call $mask (i32.sub (local.get $rest) (i32.const 16))))
            (i64.const 6480981068601479193)))))
    (if (i32.gt_u (local.get $rest) (i32.const 24))
      (then
        (local.set $v3
          (call $lane
            (local.get $v3)
            (i64.and
              (i64.load offset=24 align=1 (local.get $at))
              (call $mask (i32.sub (local.get $rest) (i32.const 24))))
            (i64.const -7908458776815382629)))))
    (call $finish
      (i64.add
        (i64.add (local.get $v0) (local.get $v1))
        (i64.add (i64.add (local.get $v2) (local.get $v3)) (local.get $base)))))

  (func $finish (param $hash i64) (result i64)
    (local.set $hash
      (i64.mul
        (i64.xor (local.get $hash) (i64.shr_u (local.get $hash) (i64.const 32)))
        (i64.const 8268148722764581231)))
    (local.set $hash
      (i64.mul
        (i64.xor (local.get $hash) (i64.shr_u (local.get $hash) (i64.const 32)))
        (i64.const -9160688886553864527)))
    (i64.xor (local.get $hash) (i64.shr_u (local.get $hash) (i64.const 32))))

  ;; Takes the `bytes` of input from `at` into the stream in `lanes`: whole stripes for good, the rest only for the
  ;; digest, which goes to `value`. `total` is the length of the stream so far.
  (func (export "absorb") (param $at i32) (param $bytes i32) (param $total f64)
    (local $stripeEnd i32)
    (local.set $stripeEnd (i32.add (local.get $at) (i32.and (local.get $bytes) (i32.const -32))))
    (call $takeStripes (local.get $at) (local.get $stripeEnd))
    (i64.store (i32.const 131072)
      (call $digest
        (local.get $stripeEnd)
        (i32.and (local.get $bytes) (i32.const 31))
        (call $base (i64.trunc_f64_u (local.get $total))))))

  ;; Digests `count` blocks of `blockBytes` that start at `at`, and mixes them into a chain after the parent in `value`.
  (func (export "hashBlocks") (param $at i32) (param $blockBytes i32) (param $count i32)
    (if (i32.or (i32.eqz (local.get $count)) (i32.eqz (local.get $blockBytes))) (then (return)))
    (if (i32.and (local.get $blockBytes) (i32.const 31))
      (then
        (call $digestRagged (local.get $at) (local.get $blockBytes) (local.get $count))
        (call $mixContents (local.get $count)))
      (else (call $hashWhole (local.get $at) (local.get $blockBytes) (local.get $count)))))

  ;; Blocks of any length, contents only.
  (func $digestRagged (param $at i32) (param $blockBytes i32) (param $count i32)
    (local $base i64) (local $stripeEnd i32) (local $rest i32) (local $out i32) (local $mask i64)
    (local.set $base (call $base (i64.extend_i32_u (local.get $blockBytes))))
    (local.set $rest (i32.and (local.get $blockBytes) (i32.const 31)))
    (local.set $mask (call $mask (local.get $blockBytes)))
    (loop $blocks
      (if (i32.le_u (local.get $blockBytes) (i32.const 8))
        (then
          ;; One word, as in a block of one token.
          (i64.store offset=65536
            (local.get $out)
            (call $finish
              (i64.add
                (call $lane
                  (i64.const 0)
                  (i64.and (i64.load align=1 (local.get $at)) (local.get $mask))
                  (i64.const 8158064640168781261))
                (local.get $base)))))
        (else
          (i64.store (i32.const 131080) (i64.const 0))
          (i64.store (i32.const 131088) (i64.const 0))
          (i64.store (i32.const 131096) (i64.const 0))
          (i64.store (i32.const 131104) (i64.const 0))
          (local.set $stripeEnd
            (i32.add (local.get $at) (i32.sub (local.get $blockBytes) (local.get $rest))))
          (call $takeStripes (local.get $at) (local.get $stripeEnd))
          (i64.store offset=65536
            (local.get $out)
            (call $digest (local.get $stripeEnd) (local.get $rest) (local.get $base)))))
      (local.set $at (i32.add (local.get $at) (local.get $blockBytes)))
      (local.set $out (i32.add (local.get $out) (i32.const 8)))
      (br_if $blocks (local.tee $count (i32.sub (local.get $count) (i32.const 1))))))

  ;; Blocks of whole stripes, which is what tokens nearly always come in.
  (func $hashWhole (param $at i32) (param $blockBytes i32) (param $count i32)
    (local $end i32) (local $out i32)
    (local $base i64) (local $v0 i64) (local $v1 i64) (local $v2 i64) (local $v3 i64)
    (local $digest i64) (local $chain i64)
    (local $k0 i64) (local $k1 i64) (local $k2 i64) (local $k3 i64)
    (local $k4 i64) (local $k5 i64) (local $k6 i64)
    (local.set $k0 (i64.load (i32.const 131112)))
    (local.set $k1 (i64.load (i32.const 131120)))
    (local.set $k2 (i64.load (i32.const 131128)))
    (local.set $k3 (i64.load (i32.const 131136)))
    (local.set $k4 (i64.load (i32.const 131144)))
    (local.set $k5 (i64.load (i32.const 131152)))
    (local.set $k6 (i64.load (i32.const 131160)))
    (local.set $chain (i64.load (i32.const 131072)))
    (local.set $base (call $base (i64.extend_i32_u (local.get $blockBytes))))
    (loop $blocks
      (local.set $end (i32.add (local.get $at) (local.get $blockBytes)))
      ;; The first stripe meets lanes of zero.
      (local.set $v0 (i64.load align=1 (local.get $at)))
      (local.set $v0
        (i64.mul
          (i64.xor (local.get $v0) (i64.shr_u (local.get $v0) (i64.const 32)))
          (local.get $k0)))
      (local.set $v1 (i64.load offset=8 align=1 (local.get $at)))
      (local.set $v1
        (i64.mul
          (i64.xor (local.get $v1) (i64.shr_u (local.get $v1) (i64.const 32)))
          (local.get $k1)))
      (local.set $v2 (i64.load offset=16 align=1 (local.get $at)))
      (local.set $v2
        (i64.mul
          (i64.xor (local.get $v2) (i64.shr_u (local.get $v2) (i64.const 32)))
          (local.get $k2)))
      (local.set $v3 (i64.load offset=24 align=1 (local.get $at)))
      (local.set $v3
        (i64.mul
          (i64.xor (local.get $v3) (i64.shr_u (local.get $v3) (i64.const 32)))
          (local.get $k3)))
      (local.set $at (i32.add (local.get $at) (i32.const 32)))
      (if (i32.lt_u (local.get $at) (local.get $end))
        (then
          (loop $stripes
            (local.set $v0 (i64.xor (local.get $v0) (i64.load align=1 (local.get $at))))
            (local.set $v0
              (i64.mul
                (i64.xor (local.get $v0) (i64.shr_u (local.get $v0) (i64.const 32)))
                (local.get $k0)))
            (local.set $v1 (i64.xor (local.get $v1) (i64.load offset=8 align=1 (local.get $at))))
            (local.set $v1
              (i64.mul
                (i64.xor (local.get $v1) (i64.shr_u (local.get $v1) (i64.const 32)))
                (local.get $k1)))
            (local.set $v2 (i64.xor (local.get $v2) (i64.load offset=16 align=1 (local.get $at))))
            (local.set $v2
              (i64.mul
                (i64.xor (local.get $v2) (i64.shr_u (local.get $v2) (i64.const 32)))
                (local.get $k2)))
            (local.set $v3 (i64.xor (local.get $v3) (i64.load offset=24 align=1 (local.get $at))))
            (local.set $v3
              (i64.mul
                (i64.xor (local.get $v3) (i64.shr_u (local.get $v3) (i64.const 32)))
                (local.get $k3)))
            (local.set $at (i32.add (local.get $at) (i32.const 32)))
            (br_if $stripes (i32.lt_u (local.get $at) (local.get $end))))))
      (local.set $digest
        (i64.add
          (i64.add (local.get $v0) (local.get $v1))
          (i64.add (i64.add (local.get $v2) (local.get $v3)) (local.get $base))))
      (local.set $digest
        (i64.mul
          (i64.xor (local.get $digest) (i64.shr_u (local.get $digest) (i64.const 32)))
          (local.get $k4)))
      (local.set $digest
        (i64.mul
          (i64.xor (local.get $digest) (i64.shr_u (local.get $digest) (i64.const 32)))
          (local.get $k5)))
      (local.set $digest (i64.xor (local.get $digest) (i64.shr_u (local.get $digest) (i64.const 32))))
      (i64.store offset=65536 (local.get $out) (local.get $digest))
      (local.set $chain
        (i64.mul
          (i64.xor (i64.rotl (local.get $chain) (i64.const 32)) (local.get $digest))
          (local.get $k6)))
      (local.set $chain (i64.xor (local.get $chain) (i64.shr_u (local.get $chain) (i64.const 32))))
      (i64.store offset=98304 (local.get $out) (local.get $chain))
      (local.set $out (i32.add (local.get $out) (i32.const 8)))
      (br_if $blocks (local.tee $count (i32.sub (local.get $count) (i32.const 1)))))
    (i64.store (i32.const 131072) (local.get $chain)))

  ;; Mixes `count` contents into a chain after the parent in `value`.
  (func $mixContents (export "mixContents") (param $count i32)
    (local $at i32) (local $chain i64)
    (if (i32.eqz (local.get $count)) (then (return)))
    (local.set $chain (i64.load (i32.const 131072)))
    (loop $blocks
      (local.set $chain
        (i64.mul
          (i64.xor (i64.rotl (local.get $chain) (i64.const 32)) (i64.load offset=65536 (local.get $at)))
          (i64.const -7215885187991268811)))
      (local.set $chain (i64.xor (local.get $chain) (i64.shr_u (local.get $chain) (i64.const 32))))
      (i64.store offset=98304 (local.get $at) (local.get $chain))
      (local.set $at (i32.add (local.get $at) (i32.const 8)))
      (br_if $blocks (local.tee $count (i32.sub (local.get $count) (i32.const 1)))))
    (i64.store (i32.const 131072) (local.get $chain))))
