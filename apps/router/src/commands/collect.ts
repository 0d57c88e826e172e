/** Parser of a flag that may be repeated: each value joins the earlier ones. */
export const collect = (value: string, earlier: readonly string[] = []): readonly string[] => [...earlier, value];
