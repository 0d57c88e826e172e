/* What the engine and the load generator of the data path benches have in common. Linux: epoll and timerfd. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define MAX_EVENTS 256
#define NS_PER_S 1000000000ull
#define NS_PER_MS 1000000ull

/* Says why on standard output, where the bench looks for it, and ends the program. */
__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...) {
  va_list values;
  va_start(values, format);
  printf("failed ");
  vprintf(format, values);
  printf("\n");
  va_end(values);
  exit(1);
}

static uint64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

static void *allocate(size_t size) {
  void *memory = calloc(1, size);
  if (!memory) fail("no memory for %zu bytes", size);
  return memory;
}

static int open_epoll(void) {
  int epoll = epoll_create1(EPOLL_CLOEXEC);
  if (epoll < 0) fail("epoll_create1: %s", strerror(errno));
  return epoll;
}

static void watch(int epoll, int operation, int fd, uint32_t events, void *owner) {
  struct epoll_event event = {.events = events, .data.ptr = owner};
  if (epoll_ctl(epoll, operation, fd, &event) < 0) fail("epoll_ctl: %s", strerror(errno));
}

/* A timer that epoll waits for more exactly than in its own milliseconds. */
static int open_timer(int epoll, void *owner) {
  int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  if (timer < 0) fail("timerfd_create: %s", strerror(errno));
  watch(epoll, EPOLL_CTL_ADD, timer, EPOLLIN, owner);
  return timer;
}

/* 0 for never. */
static void set_timer(int timer, uint64_t due_ns) {
  struct itimerspec time = {.it_value = {.tv_sec = due_ns / NS_PER_S, .tv_nsec = due_ns % NS_PER_S}};
  timerfd_settime(timer, TFD_TIMER_ABSTIME, &time, NULL);
}

static void clear_timer(int timer) {
  uint64_t expirations;
  if (read(timer, &expirations, sizeof expirations) < 0 && errno != EAGAIN) fail("timer: %s", strerror(errno));
}

static void send_at_once(int fd) {
  int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}
