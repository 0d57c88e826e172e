/** What a child process says of the task that it was sent: how far it is, then one of the two ends. */
export type ChildMessage<Result> =
  | { readonly type: "progress"; readonly share: number }
  | { readonly type: "result"; readonly result: Result }
  | {
      readonly type: "failure";
      readonly message: string;
      /** Of the error catalogue, if it is one of its errors. */
      readonly code: string | undefined;
    };
