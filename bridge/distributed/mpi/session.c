/* From MPI_Init to MPI_Finalize, whoever calls these. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

static bool is_started, is_ours;
static struct mpi_messages_world world;

/* Waits for an MPI request without holding the lock for long. */
static const char *complete(MPI_Request *request, int64_t ms, const char *what) {
    const int64_t end = ms > 0 ? now_us() + ms * 1000 : INT64_MAX;
    int64_t pause = 20;
    for (;;) {
        int is_done = 0;
        const int code = MPI_Test(request, &is_done, MPI_STATUS_IGNORE);
        if (code) return mpi_text(code);
        if (is_done) return NULL;
        if (now_us() > end)
            return say("not all %d processes of MPI_COMM_WORLD reached %s within %lld ms", world.size, what,
                       (long long)ms);
        pthread_mutex_unlock(&lock);
        sleep_us(pause);
        pause = pause < 1000 ? 2 * pause : pause;
        pthread_mutex_lock(&lock);
    }
}

static void forked(void) { /* in the child: the thread that held the lock doesn't exist here */
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    if (is_started)
        ended = "MPI was initialized in the parent process; this process was forked and can't use it";
}

/* MPI_Finalize deletes the attributes of MPI_COMM_SELF first, whoever calls it; after that no receive may be
 * pending. */
static int at_finalize(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    pthread_mutex_lock(&lock);
    if (!ended) {
        ended = "MPI has been finalized";
        cancel_arrivals();
        pthread_cond_broadcast(&changes);
    }
    leave();
    return MPI_SUCCESS;
}

static const char *begin_mpi(int64_t ms) {
    int is_there = 0, is_over = 0, level = 0;
    MPI_Finalized(&is_over);
    if (is_over) return ended = "MPI has been finalized";
    MPI_Initialized(&is_there);
    int code = is_there ? MPI_Query_thread(&level) : MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    if (code) return mpi_text(code);
    is_ours = !is_there;
    world.is_foreign = is_there;
    if (level < MPI_THREAD_SERIALIZED)
        return say("MPI was initialized for calls from one thread only (level %d); initialize it with "
                   "MPI_THREAD_MULTIPLE or MPI_THREAD_SERIALIZED",
                   level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world.size);
    char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0, *most = NULL, is_known = 0;
    MPI_Get_library_version(library, &length);
    size_t used = 0;
    for (const char *each = library; *each && !strchr("\n,", *each) && used + 1 < sizeof world.library;
         each++) {
        const bool is_blank = *each == ' ' || *each == '\t';
        if (!is_blank) world.library[used++] = *each;
        if (is_blank && used && world.library[used - 1] != ' ') world.library[used++] = ' ';
    }
    MPI_Comm *all[] = {&envelopes, &contents};
    for (int i = 0; i < 2; i++) {
        MPI_Request request = MPI_REQUEST_NULL;
        if ((code = MPI_Comm_idup(MPI_COMM_WORLD, all[i], &request))) return mpi_text(code);
        const char *why = complete(&request, ms, "the initialization of MPI");
        if (why) return why;
        MPI_Comm_set_errhandler(*all[i], MPI_ERRORS_RETURN);
    }
    MPI_Comm_get_attr(contents, MPI_TAG_UB, &most, &is_known);
    if (is_known) most_tag = *most;
    int key = 0;
    if (!MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_finalize, &key, NULL))
        MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
    begin_arrivals(world.size);
    init_monotonic(&changes);
    is_started = true;
    pthread_atfork(NULL, NULL, forked);
    if (begin_progress()) return ended = "could not start the thread that calls MPI";
    return broken;
}

const char *session_start(int64_t ms, struct mpi_messages_world *result) {
    static const char *why;
    static bool was_tried;
    pthread_mutex_lock(&lock);
    if (!was_tried) {
        was_tried = true;
        why = begin_mpi(ms);
        if (why) why = need(copy_of(why));
    }
    *result = world;
    const char *says = why ? why : ended;
    leave();
    return says;
}

const char *session_tell(void *bytes, size_t count, int64_t ms) {
    MPI_Request request = MPI_REQUEST_NULL;
    char *copy = need(malloc(count)); /* leaked on a timeout, because MPI may still write to it */
    memcpy(copy, bytes, count);
    pthread_mutex_lock(&lock);
    const int code = MPI_Ibcast(copy, (int)count, MPI_BYTE, 0, contents, &request);
    const char *why = code ? mpi_text(code) : complete(&request, ms, "the creation of the process group");
    leave();
    if (why) return why;
    memcpy(bytes, copy, count);
    free(copy);
    return NULL;
}

/* All ranks meet before MPI_Finalize, because some implementations don't wait for ranks that are still busy,
 * and none of them tells the launcher of a failed rank. */
void session_end(bool in_order) {
    pthread_mutex_lock(&lock);
    if (!is_started || ended || is_ending) return leave();
    end_progress();
    const int64_t limit = now_us() + 5000000;
    while (in_order && flights && !broken && now_us() < limit)
        if (!drive()) sleep_us(100);
    in_order = in_order && !flights && !broken;
    MPI_Request request = MPI_REQUEST_NULL;
    if (in_order && is_ours && !MPI_Ibarrier(contents, &request)) {
        int is_done = 0;
        int64_t pause = 20;
        while (!broken && !MPI_Test(&request, &is_done, MPI_STATUS_IGNORE) && !is_done)
            if (!drive()) {
                leave(); /* threads that wait make progress meanwhile */
                sleep_us(pause);
                pause = pause < 5000 ? 2 * pause : pause;
                pthread_mutex_lock(&lock);
            }
        in_order = is_done;
    }
    const bool finalizes = in_order && is_ours;
    if (in_order && !finalizes) cancel_arrivals();
    if (finalizes) {
        ended = "MPI has been finalized";
        cancel_arrivals();
        MPI_Comm_free(&envelopes);
        MPI_Comm_free(&contents);
    } else {
        ended = "the process is exiting";
    }
    pthread_cond_broadcast(&changes);
    leave();
    if (finalizes) MPI_Finalize();
}
