// Moves the wall clock of the program that loads this library with LD_PRELOAD. The
// file named by HOLDFAST_CLOCK holds the offset: a 64-bit number of nanoseconds in
// the machine's byte order, which may change at any time. Clocks that count elapsed
// time are not affected.
//
//	cc -shared -fPIC -O2 -o clock.so clock.c -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static const volatile int64_t *file;

__attribute__((constructor)) static void attach(void) {
	const char *name = getenv("HOLDFAST_CLOCK");
	int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0) return;
	void *map = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (map != MAP_FAILED) file = map;
}

static void move(struct timespec *t, int64_t by) {
	int64_t nsec = t->tv_nsec + by % SECOND;
	t->tv_sec += by / SECOND + (nsec >= SECOND) - (nsec < 0);
	t->tv_nsec = nsec + (nsec < 0) * SECOND - (nsec >= SECOND) * SECOND;
}

int clock_gettime(clockid_t id, struct timespec *t) {
	int failed = (int)syscall(SYS_clock_gettime, id, t);
	if (!failed && file && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) move(t, *file);
	return failed;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
	struct timespec t;
	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &t) == 0) {
		tv->tv_sec = t.tv_sec;
		tv->tv_usec = t.tv_nsec / 1000;
	}
	return 0;
}

time_t time(time_t *result) {
	struct timespec t;
	if (clock_gettime(CLOCK_REALTIME, &t) != 0) return -1;
	if (result) *result = t.tv_sec;
	return t.tv_sec;
}

typedef int wait_until(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);

// Converts a deadline of the moved clock into one of the kernel's clock. A deadline
// of a clock that counts elapsed time is far from today's date and is not changed.
int pthread_cond_timedwait(pthread_cond_t *restrict c, pthread_mutex_t *restrict m, const struct timespec *restrict until) {
	static wait_until *real;
	if (!real) {
#ifdef __x86_64__
		real = (wait_until *)dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
#else
		real = (wait_until *)dlsym(RTLD_NEXT, "pthread_cond_timedwait");
#endif
	}
	struct timespec t = *until;
	if (file && t.tv_sec > 1000000000 && t.tv_sec < 100000000000) move(&t, -*file);
	return real(c, m, &t);
}
