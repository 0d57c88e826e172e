/** 64 bits in two halves, both unsigned 32-bit integers. In arrays the low half comes first ("hash words"). */
export interface Hash64 {
  readonly low: number;
  readonly high: number;
}
