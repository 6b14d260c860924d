/* The profiler: records launches, copies, fills and host functions while it is on. Records wait in one list
 * until xpu_profile_drain passes them to its visitor, without a lock held. Any thread may call. A record that
 * finds no host memory is dropped; the work still runs. */
#include "runtime/work.h"

typedef struct record {
    xpu_profile_record seen;
    cl_event event; /* supplies the times when drained; NULL: they are known */
} record;

atomic_bool profile_on;
static os_mutex records_lock = OS_MUTEX_INIT; /* guards records, record_count and record_room */
static record *records;
static size_t record_count, record_room;
static atomic_ullong correlation;
static _Thread_local uint64_t profile_context;

void profile_add(const char *name, const xpu_stream *stream, uint64_t submitted, uint64_t started,
                 uint64_t ended, uint64_t bytes, cl_event event) {
    os_mutex_lock(&records_lock);
    if (record_count == record_room) {
        size_t room = record_room ? 2 * record_room : 1024;
        record *more = core_realloc(records, room * sizeof *more);
        if (more) {
            records = more;
            record_room = room;
        }
    }
    if (record_count < record_room) { /* false if the list could not grow */
        records[record_count++] =
            (record){{name, stream->device, stream->id, atomic_fetch_add(&correlation, 1) + 1, submitted,
                      started, ended, bytes, profile_context},
                     event};
    } else if (event) {
        cl_devices[stream->device].api->clReleaseEvent(event);
    }
    os_mutex_unlock(&records_lock);
}

xpu_status xpu_profile_set_context(uint64_t context) {
    profile_context = context;
    return XPU_SUCCESS;
}

xpu_status xpu_profile_start(void) {
    if (!atomic_exchange(&profile_on, true)) atomic_fetch_add(&work_observers, 1);
    return XPU_SUCCESS;
}

xpu_status xpu_profile_stop(void) {
    if (atomic_exchange(&profile_on, false)) atomic_fetch_sub(&work_observers, 1);
    return XPU_SUCCESS;
}

/* Converts an event's times to the host clock, aligning its submission with the recorded submission time. */
static xpu_status read_times(record *r) {
    if (!r->event) return XPU_SUCCESS;
    const cl_device *device = &cl_devices[r->seen.device];
    cl_ulong submit = 0, start = 0, end = 0;
    CL_TRY(device, device->api->clWaitForEvents(1, &r->event));
    CL_TRY(device,
           device->api->clGetEventProfilingInfo(r->event, CL_PROFILING_COMMAND_SUBMIT, 8, &submit, NULL));
    CL_TRY(device,
           device->api->clGetEventProfilingInfo(r->event, CL_PROFILING_COMMAND_START, 8, &start, NULL));
    CL_TRY(device, device->api->clGetEventProfilingInfo(r->event, CL_PROFILING_COMMAND_END, 8, &end, NULL));
    r->seen.started = r->seen.submitted + (start > submit ? start - submit : 0);
    r->seen.ended = r->seen.started + (end - start);
    device->api->clReleaseEvent(r->event);
    r->event = NULL;
    return XPU_SUCCESS;
}

xpu_status xpu_profile_drain(xpu_profile_visitor visit, void *user) {
    if (xpu_in_bad_fork()) return cl_init(); /* the child's copy of the lock may be locked forever */
    os_mutex_lock(&records_lock);
    record *taken = records;
    size_t count = record_count;
    records = NULL;
    record_count = record_room = 0;
    os_mutex_unlock(&records_lock);
    xpu_status status = XPU_SUCCESS;
    for (size_t i = 0; i < count; i++) {
        xpu_status one = read_times(&taken[i]);
        if (one == XPU_SUCCESS)
            visit(&taken[i].seen, user);
        else
            status = one;
    }
    core_free(taken);
    return status;
}
