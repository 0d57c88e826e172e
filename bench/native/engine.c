/*
 * An engine that answers at once with prepared bytes and costs next to nothing, so that what is measured is what stands in
 * front of it.
 *
 * engine ADDRESSES FILE: listens on so many ports of 127.0.0.1, prints them in one line, and ends when its standard input
 * does. FILE holds its answers, each as "NAME SIZE\n" and so many bytes: whole ones by path ("*" for every other path), and
 * those of a stream in order ("piece", then "last" and "last-usage" for one that asks for its usage).
 */
#include "common.h"

#include <sys/socket.h>

#define MAX_ADDRESSES 64
#define MAX_PIECES 4096
#define MAX_PATHS 8
#define MAX_HEAD_BYTES 65536
/* Bodies above it are not searched for how to stream: they get one object. */
#define MAX_STREAM_BODY_BYTES 16384
#define DISCARD_BYTES 262144

struct piece {
  const char *bytes;
  size_t size;
};

struct answer {
  const char *path;
  struct piece piece;
};

struct connection {
  int fd;
  char input[MAX_HEAD_BYTES + MAX_STREAM_BODY_BYTES];
  size_t length;
  /* Of a body that is only counted. */
  size_t discard;
  /* Whether a body in chunks is being read, whose length is not known; and whether its last chunk has come. */
  int is_chunked;
  int has_last_chunk;
  /* The answer that is being written: so many pieces from `stream` or one, and how far it has come. */
  const struct piece *whole;
  const struct piece *last;
  int is_answering;
  int piece;
  size_t offset;
  uint64_t gap_ns;
  uint64_t due_ns;
  int waits_for_room;
  struct connection *next_paced;
  struct connection *previous_paced;
  int is_paced;
};

static int epoll;
static int timer;
static struct answer answers[MAX_PATHS];
static int answer_count;
static struct piece stream[MAX_PIECES];
static int stream_count;
static struct piece last_piece;
static struct piece last_piece_with_usage;
static struct connection *paced;
static char listener_mark;
static char stdin_mark;
static char discarded[DISCARD_BYTES];
static int listeners[MAX_ADDRESSES];

static void read_answers(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) fail("%s: %s", path, strerror(errno));
  char name[64];
  size_t size;
  while (fscanf(file, "%63s %zu", name, &size) == 2) {
    if (fgetc(file) != '\n') fail("%s is no file of answers", path);
    char *bytes = allocate(size);
    if (fread(bytes, 1, size, file) != size) fail("%s is cut off", path);
    struct piece piece = {bytes, size};
    if (strcmp(name, "piece") == 0) {
      if (stream_count == MAX_PIECES) fail("more than %d pieces", MAX_PIECES);
      stream[stream_count++] = piece;
    } else if (strcmp(name, "last") == 0) {
      last_piece = piece;
    } else if (strcmp(name, "last-usage") == 0) {
      last_piece_with_usage = piece;
    } else {
      if (answer_count == MAX_PATHS) fail("more than %d paths", MAX_PATHS);
      answers[answer_count++] = (struct answer){strdup(name), piece};
    }
  }
  fclose(file);
}

static const struct piece *answer_to(const char *path, size_t length) {
  const struct piece *other = NULL;
  for (int at = 0; at < answer_count; at++) {
    const char *known = answers[at].path;
    if (strcmp(known, "*") == 0) other = &answers[at].piece;
    else if (strlen(known) == length && memcmp(known, path, length) == 0) return &answers[at].piece;
  }
  if (!other) fail("no answer for other paths");
  return other;
}

static void leave_pace(struct connection *connection) {
  if (!connection->is_paced) return;
  connection->is_paced = 0;
  if (connection->previous_paced) connection->previous_paced->next_paced = connection->next_paced;
  else paced = connection->next_paced;
  if (connection->next_paced) connection->next_paced->previous_paced = connection->previous_paced;
}

static void join_pace(struct connection *connection) {
  if (connection->is_paced) return;
  connection->is_paced = 1;
  connection->previous_paced = NULL;
  connection->next_paced = paced;
  if (paced) paced->previous_paced = connection;
  paced = connection;
}

static void drop(struct connection *connection) {
  leave_pace(connection);
  close(connection->fd);
  free(connection);
}

static void arm(void) {
  uint64_t due = 0;
  for (struct connection *each = paced; each; each = each->next_paced)
    if (due == 0 || each->due_ns < due) due = each->due_ns;
  set_timer(timer, due);
}

/* Writes what is due. Returns 0 when the connection is gone. */
static int write_answer(struct connection *connection) {
  while (connection->is_answering) {
    int is_last = connection->whole || connection->piece == stream_count;
    const struct piece *piece =
        connection->whole ? connection->whole : is_last ? connection->last : &stream[connection->piece];
    ssize_t written =
        send(connection->fd, piece->bytes + connection->offset, piece->size - connection->offset, MSG_NOSIGNAL);
    if (written < 0 && errno != EAGAIN) return 0;
    if (written > 0) connection->offset += (size_t)written;
    if (connection->offset < piece->size) {
      if (!connection->waits_for_room) watch(epoll, EPOLL_CTL_MOD, connection->fd, EPOLLIN | EPOLLOUT, connection);
      connection->waits_for_room = 1;
      return 1;
    }
    connection->offset = 0;
    connection->piece += 1;
    if (is_last) {
      connection->is_answering = 0;
      leave_pace(connection);
    } else if (connection->gap_ns > 0) {
      connection->due_ns += connection->gap_ns;
      join_pace(connection);
      break;
    }
  }
  if (connection->waits_for_room) watch(epoll, EPOLL_CTL_MOD, connection->fd, EPOLLIN, connection);
  connection->waits_for_room = 0;
  return 1;
}

static void answer_with(struct connection *connection, const char *path, size_t path_length, const char *body,
                        size_t body_length) {
  static const char shape_mark[] = "\"stream ";
  static const char usage_wish[] = "\"include_usage\":true";
  const char *shape = body ? memmem(body, body_length, shape_mark, sizeof shape_mark - 1) : NULL;
  connection->is_answering = 1;
  connection->piece = 0;
  connection->offset = 0;
  connection->gap_ns = 0;
  connection->whole = shape ? NULL : answer_to(path, path_length);
  if (!shape) return;
  int tokens = 0;
  int gap_ms = 0;
  if (sscanf(shape + sizeof shape_mark - 1, "%d,%d", &tokens, &gap_ms) != 2 || tokens != stream_count + 1)
    fail("streams have %d tokens, not what a request asks for", stream_count + 1);
  connection->gap_ns = (uint64_t)gap_ms * NS_PER_MS;
  connection->due_ns = now_ns();
  connection->last = memmem(body, body_length, usage_wish, sizeof usage_wish - 1) ? &last_piece_with_usage : &last_piece;
}

static void take_input(struct connection *connection, size_t size) {
  connection->length -= size;
  memmove(connection->input, connection->input + size, connection->length);
}

/*
 * Skips what has come of a body in chunks: it is not searched for how to stream, and gets one object. Returns 1 when it has
 * ended, 0 when more is needed, -1 for no chunks.
 */
static int skip_chunks(struct connection *connection) {
  char *input = connection->input;
  for (;;) {
    char *end = memmem(input, connection->length, "\r\n", 2);
    if (!end) return connection->length >= MAX_HEAD_BYTES ? -1 : 0;
    size_t line = (size_t)(end - input) + 2;
    if (connection->has_last_chunk) {
      /* Trailers, up to an empty line. */
      take_input(connection, line);
      if (line == 2) return 1;
      continue;
    }
    char *digits_end;
    size_t size = strtoul(input, &digits_end, 16);
    if (digits_end == input) return -1;
    take_input(connection, line);
    if (size == 0) {
      connection->has_last_chunk = 1;
      continue;
    }
    size += 2;
    size_t taken = connection->length < size ? connection->length : size;
    take_input(connection, taken);
    connection->discard = size - taken;
    if (connection->discard > 0) return 0;
  }
}

/* Takes the next whole request from the input. Returns 1 when there was one, 0 when more is needed, -1 for no HTTP. */
static int take_request(struct connection *connection) {
  char *input = connection->input;
  char *end = memmem(input, connection->length, "\r\n\r\n", 4);
  if (!end) return connection->length >= MAX_HEAD_BYTES ? -1 : 0;
  size_t head = (size_t)(end - input) + 4;
  char *path = memchr(input, ' ', head);
  if (!path) return -1;
  path += 1;
  size_t path_length = strcspn(path, " \r");
  *end = 0;
  char *field = strcasestr(input, "\r\ncontent-length:");
  int is_chunked = strcasestr(input, "\r\ntransfer-encoding: chunked") != NULL;
  *end = '\r';
  size_t body = field && field < end ? strtoul(field + 17, NULL, 10) : 0;
  size_t have = connection->length - head;
  if (is_chunked) {
    answer_with(connection, path, path_length, NULL, 0);
    connection->is_chunked = 1;
    connection->has_last_chunk = 0;
    take_input(connection, head);
    return 1;
  }
  if (body > MAX_STREAM_BODY_BYTES) {
    answer_with(connection, path, path_length, NULL, 0);
    size_t taken = have < body ? have : body;
    connection->discard = body - taken;
    take_input(connection, head + taken);
    return 1;
  }
  if (have < body) return 0;
  answer_with(connection, path, path_length, input + head, body);
  take_input(connection, head + body);
  return 1;
}

/* Returns 0 when the connection is gone. */
static int proceed(struct connection *connection) {
  for (;;) {
    if (connection->discard > 0) return 1;
    if (connection->is_chunked) {
      int skipped = skip_chunks(connection);
      if (skipped <= 0) return skipped == 0;
      connection->is_chunked = 0;
    }
    if (connection->is_answering && !write_answer(connection)) return 0;
    if (connection->is_answering) return 1;
    int taken = take_request(connection);
    if (taken <= 0) return taken == 0;
  }
}

static void receive(struct connection *connection) {
  for (;;) {
    int discards = connection->discard > 0;
    size_t room = discards ? (connection->discard < DISCARD_BYTES ? connection->discard : DISCARD_BYTES)
                           : sizeof connection->input - connection->length;
    ssize_t got = read(connection->fd, discards ? discarded : connection->input + connection->length, room);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      drop(connection);
      return;
    }
    if (discards) connection->discard -= (size_t)got;
    else connection->length += (size_t)got;
    if (!proceed(connection)) {
      drop(connection);
      return;
    }
    if ((size_t)got < room) return;
  }
}

static void accept_all(int listener) {
  for (;;) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    send_at_once(fd);
    struct connection *connection = allocate(sizeof *connection);
    connection->fd = fd;
    watch(epoll, EPOLL_CTL_ADD, fd, EPOLLIN, connection);
  }
}

static void write_due(void) {
  uint64_t now = now_ns();
  for (struct connection *each = paced, *next; each; each = next) {
    next = each->next_paced;
    if (each->due_ns <= now && !each->waits_for_room && !proceed(each)) drop(each);
  }
}

static void listen_on(int count) {
  for (int at = 0; at < count; at++) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, 4096) < 0) fail("listen: %s", strerror(errno));
    getsockname(fd, (struct sockaddr *)&address, &size);
    printf(at == 0 ? "%d" : " %d", ntohs(address.sin_port));
    listeners[at] = fd;
    watch(epoll, EPOLL_CTL_ADD, fd, EPOLLIN, &listener_mark);
  }
  printf("\n");
  fflush(stdout);
}

int main(int argc, char **argv) {
  int count = argc == 3 ? atoi(argv[1]) : 0;
  if (count < 1 || count > MAX_ADDRESSES) fail("usage: engine ADDRESSES FILE, at most %d addresses", MAX_ADDRESSES);
  read_answers(argv[2]);
  epoll = open_epoll();
  timer = open_timer(epoll, &timer);
  watch(epoll, EPOLL_CTL_ADD, STDIN_FILENO, EPOLLIN, &stdin_mark);
  listen_on(count);
  struct epoll_event events[MAX_EVENTS];
  for (;;) {
    int happened = epoll_wait(epoll, events, MAX_EVENTS, -1);
    for (int at = 0; at < happened; at++) {
      void *owner = events[at].data.ptr;
      if (owner == &stdin_mark) return 0;
      if (owner == &timer) {
        clear_timer(timer);
      } else if (owner == &listener_mark) {
        for (int each = 0; each < count; each++) accept_all(listeners[each]);
      } else if ((events[at].events & EPOLLOUT) && !proceed(owner)) {
        drop(owner);
      } else if (events[at].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        receive(owner);
      }
    }
    if (paced) {
      write_due();
      arm();
    }
  }
}
