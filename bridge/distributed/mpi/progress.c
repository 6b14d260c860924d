/* Who calls MPI: a thread that waits for a message, else the progress thread. */
#include "internal.h"

#include <sched.h>
#include <time.h>

#include <sys/prctl.h>

static bool is_driven; /* by a waiting thread */
bool is_ending;
static pthread_t helper;
static pthread_cond_t wakes;

/* Progress thread, for messages that no thread waits for: polls often while messages are in progress, else
 * rarely. */
static void *help(void *nothing) {
    (void)nothing;
    int64_t pause = 50;
    pthread_mutex_lock(&lock);
    while (!is_ending && !ended) {
        const bool is_busy = has_messages() || flights;
        if (!is_driven && drive()) pause = 50;
        const int64_t most = is_busy ? 1000 : 5000;
        leave();
        sleep_us(pause);
        pthread_mutex_lock(&lock);
        pause = pause * 2 < most ? pause * 2 : most;
        while (is_driven && !is_ending && !ended) { /* a waiting thread drives MPI */
            const struct timespec then = after_us(5000);
            pthread_cond_timedwait(&wakes, &lock, &then);
        }
    }
    leave();
    return NULL;
}

int begin_progress(void) {
    init_monotonic(&wakes);
    return pthread_create(&helper, NULL, help, NULL);
}

void end_progress(void) {
    is_ending = true;
    pthread_cond_broadcast(&wakes);
    leave();
    pthread_join(helper, NULL);
    pthread_mutex_lock(&lock);
}

bool has_end(const struct mpi_message *message) {
    return message->state == OVER || message->is_aborted || ended;
}

enum mpi_end progress_wait(struct mpi_message *message, int64_t ms) {
    const int64_t begin = now_us(), end = ms > 0 ? begin + ms * 1000 : INT64_MAX;
    int64_t pause = 5, moved = begin; /* when MPI last made progress */
    pthread_mutex_lock(&lock);
    while (!has_end(message)) {
        const int64_t now = now_us();
        if (now > end) break;
        if (is_driven) { /* another waiting thread drives MPI */
            const struct timespec then = after_us(end - now < 100000 ? end - now + 1 : 100000);
            pthread_cond_timedwait(&changes, &lock, &then);
            continue;
        }
        is_driven = true;
        const int slack = prctl(PR_GET_TIMERSLACK);
        prctl(PR_SET_TIMERSLACK, 1000UL); /* ns; the default of 50 µs is longer than most messages take */
        while (!has_end(message)) {
            const bool has_moved = drive();
            if (has_end(message)) break;
            const int64_t then = now_us();
            if (then > end) break;
            if (has_moved) pause = 5, moved = then;
            leave();
            if (then - moved < 30) {
                sched_yield();
            } else { /* sleep early, so that other threads get the CPU; a thread that has slept gets it back
                        at once */
                sleep_us(pause);
                if (then - moved > 2000 && pause < 200) pause *= 2;
            }
            pthread_mutex_lock(&lock);
        }
        is_driven = false;
        if (slack > 0) prctl(PR_SET_TIMERSLACK, (unsigned long)slack);
        pthread_cond_broadcast(&changes); /* another waiting thread takes over */
        pthread_cond_signal(&wakes);
    }
    enum mpi_end how = MPI_TIME_OVER;
    if (message->why)
        how = MPI_HAS_FAILED;
    else if (message->is_aborted)
        how = MPI_WAS_ABORTED;
    else if (message->state == OVER)
        how = MPI_IS_OVER;
    else if (ended)
        how = MPI_HAS_FAILED;
    leave();
    return how;
}

bool progress_is_over(struct mpi_message *message) {
    pthread_mutex_lock(&lock);
    if (!has_end(message) && !is_driven) drive();
    const bool is = has_end(message);
    leave();
    return is;
}
