/*
 * Sends one prepared request again and again and measures what a client sees.
 *
 * load PORTS FILE SERIAL_AT FIRST_SERIAL PACE WARM_REQUESTS WARM_MS REQUESTS MS
 *   PORTS      of 127.0.0.1, with commas between, in turn
 *   FILE       the bytes of the request; 12 digits from SERIAL_AT on are a number that makes each one a different prompt
 *   PACE       closed:CONNECTIONS, open:PER_SECOND:SEED (at random times), or burst:STREAMS (at once, again when all have ended)
 *   REQUESTS   and MS: 0 for the one that does not end it
 *
 * After the warm-up it prints "warm" and waits for a line; then it measures, prints "done REQUESTS NANOSECONDS CPU_NANOSECONDS" (its
 * own CPU time) and, for each request, two 8-byte floats: milliseconds to the first byte of the body, and to the last. What goes wrong is told as
 * "failed REASON".
 */
#include "common.h"

#include <fcntl.h>
#include <math.h>
#include <sys/socket.h>

#define MAX_ADDRESSES 64
#define MAX_CONNECTIONS 8192
#define MAX_HEAD_BYTES 65536
#define READ_BYTES 262144
#define SERIAL_DIGITS 12
#define GRACE_MS 20000
#define BURST_PAUSE_MS 50
#define TAIL "[DONE]\n\n\r\n0\r\n\r\n"
#define TAIL_BYTES (sizeof TAIL - 1)
#define LAST_CHUNK_BYTES 5

enum part { HEAD, SIZED, CHUNKED };

struct connection {
  int fd;
  int address;
  int is_busy;
  int waits_for_room;
  char *request;
  size_t sent;
  enum part part;
  /* Answers that are no stream may come in chunks too, from a gateway. */
  int is_json;
  char *head;
  size_t head_length;
  size_t missing;
  char tail[TAIL_BYTES];
  uint64_t started_ns;
  uint64_t first_ns;
  struct connection *next_idle;
};

struct extent {
  long requests;
  uint64_t duration_ns;
};

static int epoll;
static int timer;
static int ports[MAX_ADDRESSES];
static int port_count;
static struct connection *idle[MAX_ADDRESSES];
static int connection_count;
static char *request;
static size_t request_size;
static size_t serial_at;
static uint64_t serial;
static char pace[16];
static double pace_number;
static uint64_t random_state;
static struct extent extent;
static uint64_t end_ns;
static long started;
static long in_flight;
static long turn;
static double *timings;
static size_t timing_count;
static size_t timing_room;
static int is_recording;
static char input[READ_BYTES];

static double random_share(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (double)(random_state >> 11) / 9007199254740992.0;
}

static int may_start(uint64_t now) {
  return (extent.requests == 0 || started < extent.requests) && (extent.duration_ns == 0 || now < end_ns);
}

static void record(const struct connection *connection, uint64_t now) {
  if (!is_recording) return;
  if (timing_count == timing_room) {
    timing_room = timing_room ? 2 * timing_room : 65536;
    timings = realloc(timings, timing_room * 2 * sizeof *timings);
    if (!timings) fail("no memory for %zu timings", timing_room);
  }
  timings[2 * timing_count] = (double)(connection->first_ns - connection->started_ns) / (double)NS_PER_MS;
  timings[2 * timing_count + 1] = (double)(now - connection->started_ns) / (double)NS_PER_MS;
  timing_count += 1;
}

static void push(struct connection *connection) {
  ssize_t written = 0;
  while (connection->sent < request_size) {
    written = send(connection->fd, connection->request + connection->sent, request_size - connection->sent, MSG_NOSIGNAL);
    if (written < 0) break;
    connection->sent += (size_t)written;
  }
  if (written < 0 && errno != EAGAIN) fail("a connection was lost: %s", strerror(errno));
  int waits = connection->sent < request_size;
  if (waits == connection->waits_for_room) return;
  watch(epoll, EPOLL_CTL_MOD, connection->fd, waits ? EPOLLIN | EPOLLOUT : EPOLLIN, connection);
  connection->waits_for_room = waits;
}

static struct connection *connect_to(int address) {
  if (++connection_count > MAX_CONNECTIONS) fail("more than %d requests at once", MAX_CONNECTIONS);
  struct sockaddr_in target = {
      .sin_family = AF_INET, .sin_port = htons(ports[address]), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct connection *connection = allocate(sizeof *connection);
  connection->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  connection->address = address;
  connection->request = allocate(request_size);
  connection->head = allocate(MAX_HEAD_BYTES);
  memcpy(connection->request, request, request_size);
  if (connect(connection->fd, (struct sockaddr *)&target, sizeof target) < 0) fail("connect: %s", strerror(errno));
  fcntl(connection->fd, F_SETFL, O_NONBLOCK);
  send_at_once(connection->fd);
  watch(epoll, EPOLL_CTL_ADD, connection->fd, EPOLLIN, connection);
  return connection;
}

static void begin(void) {
  int address = (int)(turn++ % port_count);
  struct connection *connection = idle[address];
  if (connection) idle[address] = connection->next_idle;
  else connection = connect_to(address);
  uint64_t left = serial++;
  for (int digit = SERIAL_DIGITS - 1; digit >= 0; digit--, left /= 10)
    connection->request[serial_at + (size_t)digit] = (char)('0' + left % 10);
  connection->is_busy = 1;
  connection->sent = 0;
  connection->part = HEAD;
  connection->head_length = 0;
  connection->first_ns = 0;
  memset(connection->tail, 0, TAIL_BYTES);
  started += 1;
  in_flight += 1;
  connection->started_ns = now_ns();
  push(connection);
}

static void finish(struct connection *connection) {
  uint64_t now = now_ns();
  record(connection, now);
  connection->is_busy = 0;
  connection->next_idle = idle[connection->address];
  idle[connection->address] = connection;
  in_flight -= 1;
  if (pace[0] == 'c' && may_start(now)) begin();
}

/* Returns where the body begins. */
static size_t read_head(struct connection *connection) {
  char *head = connection->head;
  char *end = memmem(head, connection->head_length, "\r\n\r\n", 4);
  if (!end) {
    if (connection->head_length == MAX_HEAD_BYTES) fail("the head of an answer does not end");
    return 0;
  }
  if (strncmp(head, "HTTP/1.1 200 ", 13) != 0) {
    size_t shown = connection->head_length < 600 ? connection->head_length : 600;
    for (size_t at = 0; at < shown; at++)
      if (head[at] == '\r' || head[at] == '\n') head[at] = ' ';
    fail("answered %.*s", (int)shown, head);
  }
  *end = 0;
  char *length = strcasestr(head, "\r\ncontent-length:");
  if (!length && !strcasestr(head, "\r\ntransfer-encoding: chunked")) fail("an answer has neither length nor chunks");
  connection->part = length ? SIZED : CHUNKED;
  connection->is_json = strcasestr(head, "\r\ncontent-type: application/json") != NULL;
  connection->missing = length ? strtoul(length + 17, NULL, 10) : 0;
  return (size_t)(end - head) + 4;
}

static void read_body(struct connection *connection, const char *bytes, size_t length) {
  if (length > 0 && connection->first_ns == 0) connection->first_ns = now_ns();
  if (connection->part == SIZED) {
    if (length > connection->missing) fail("an answer is longer than its content-length");
    connection->missing -= length;
    if (connection->missing == 0) finish(connection);
    return;
  }
  if (length >= TAIL_BYTES) {
    memcpy(connection->tail, bytes + length - TAIL_BYTES, TAIL_BYTES);
  } else {
    memmove(connection->tail, connection->tail + length, TAIL_BYTES - length);
    memcpy(connection->tail + TAIL_BYTES - length, bytes, length);
  }
  const char *last = connection->tail + TAIL_BYTES - LAST_CHUNK_BYTES;
  if (memcmp(last, "0\r\n\r\n", LAST_CHUNK_BYTES) != 0) return;
  if (!connection->is_json && memcmp(connection->tail, TAIL, TAIL_BYTES) != 0) fail("a stream ended without [DONE]");
  finish(connection);
}

static void take(struct connection *connection, const char *bytes, size_t length) {
  if (connection->part != HEAD) {
    read_body(connection, bytes, length);
    return;
  }
  size_t room = MAX_HEAD_BYTES - connection->head_length;
  size_t copied = length < room ? length : room;
  size_t before = connection->head_length;
  memcpy(connection->head + before, bytes, copied);
  connection->head_length += copied;
  size_t body = read_head(connection);
  if (body > 0) read_body(connection, bytes + (body - before), length - (body - before));
}

static void forget(struct connection *connection) {
  struct connection **at = &idle[connection->address];
  while (*at && *at != connection) at = &(*at)->next_idle;
  if (*at) *at = connection->next_idle;
  close(connection->fd);
  connection->fd = -1;
  connection_count -= 1;
}

static void receive(struct connection *connection) {
  if (connection->fd < 0) return;
  ssize_t got = read(connection->fd, input, sizeof input);
  if (got < 0 && errno == EAGAIN) return;
  if (connection->is_busy && got <= 0) fail("a connection was closed before its answer was complete");
  if (got <= 0) forget(connection);
  else if (!connection->is_busy) fail("an answer that nobody asked for");
  else take(connection, input, (size_t)got);
}

static void wait_until(uint64_t due_ns) {
  struct epoll_event events[MAX_EVENTS];
  set_timer(timer, due_ns);
  int happened = epoll_wait(epoll, events, MAX_EVENTS, 100);
  for (int at = 0; at < happened; at++) {
    struct connection *connection = events[at].data.ptr;
    if (!connection) {
      clear_timer(timer);
      continue;
    }
    if ((events[at].events & EPOLLOUT) && connection->fd >= 0) push(connection);
    if (events[at].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(connection);
  }
}

/* Returns how long it took. */
static uint64_t run(struct extent given) {
  extent = given;
  started = 0;
  uint64_t start = now_ns();
  end_ns = start + extent.duration_ns;
  uint64_t limit_ns = (extent.duration_ns ? extent.duration_ns : 60 * NS_PER_S) + GRACE_MS * NS_PER_MS;
  uint64_t due = start;
  if (pace[0] == 'c')
    for (int each = 0; each < (int)pace_number && may_start(start); each++) begin();
  for (;;) {
    uint64_t now = now_ns();
    if (now - start > limit_ns) fail("%ld answers were not complete in time", in_flight);
    int goes_on = may_start(pace[0] == 'o' ? due : now);
    while (pace[0] == 'o' && goes_on && due <= now) {
      begin();
      due += (uint64_t)(-log(1.0 - random_share()) / pace_number * (double)NS_PER_S);
      goes_on = may_start(due);
    }
    if (pace[0] == 'b' && in_flight == 0 && goes_on && due <= now)
      for (int each = 0; each < (int)pace_number && may_start(now); each++) begin();
    if (pace[0] == 'b' && in_flight > 0) due = now + BURST_PAUSE_MS * NS_PER_MS;
    if (in_flight == 0 && !(goes_on && pace[0] != 'c')) return now_ns() - start;
    wait_until(pace[0] == 'c' || (pace[0] == 'b' && in_flight > 0) || !goes_on ? 0 : due);
  }
}

static void read_arguments(int argc, char **argv) {
  if (argc != 10) fail("usage: load PORTS FILE SERIAL_AT FIRST_SERIAL PACE WARM_REQUESTS WARM_MS REQUESTS MS");
  for (char *port = strtok(argv[1], ","); port && port_count < MAX_ADDRESSES; port = strtok(NULL, ","))
    ports[port_count++] = atoi(port);
  FILE *file = fopen(argv[2], "rb");
  if (!file) fail("%s: %s", argv[2], strerror(errno));
  fseek(file, 0, SEEK_END);
  request_size = (size_t)ftell(file);
  rewind(file);
  request = allocate(request_size);
  if (fread(request, 1, request_size, file) != request_size) fail("%s cannot be read", argv[2]);
  fclose(file);
  serial_at = strtoul(argv[3], NULL, 10);
  serial = strtoull(argv[4], NULL, 10);
  unsigned long seed = 1;
  if (sscanf(argv[5], "%15[a-z]:%lf:%lu", pace, &pace_number, &seed) < 2) fail("%s is no pace", argv[5]);
  random_state = (seed + 1) * 0x9e3779b97f4a7c15ull;
}

static struct extent extent_of(char **argv) {
  return (struct extent){atol(argv[0]), strtoull(argv[1], NULL, 10) * NS_PER_MS};
}

static uint64_t cpu_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

int main(int argc, char **argv) {
  read_arguments(argc, argv);
  epoll = open_epoll();
  timer = open_timer(epoll, NULL);
  struct extent warm_up = extent_of(argv + 6);
  if (warm_up.requests > 0 || warm_up.duration_ns > 0) run(warm_up);
  printf("warm\n");
  fflush(stdout);
  if (getchar() != '\n') return 1;
  is_recording = 1;
  uint64_t cpu_before = cpu_ns();
  uint64_t elapsed = run(extent_of(argv + 8));
  printf("done %zu %llu %llu\n", timing_count, (unsigned long long)elapsed, (unsigned long long)(cpu_ns() - cpu_before));
  fwrite(timings, 2 * sizeof *timings, timing_count, stdout);
  return 0;
}
