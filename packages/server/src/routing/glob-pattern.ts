/** A pattern in which `*` stands for any run of characters and everything else for itself. */
export function globPattern(glob: string): RegExp {
  return new RegExp(`^${glob.split("*").map(escapePattern).join(".*")}$`);
}

function escapePattern(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}
