// torch.profiler support: kernels, copies and fills with device times. Kineto, which is part of PyTorch,
// reads such records from "child profilers"; libxpu collects them.
#include "profiler.h"

#include <kineto/libkineto.h>
#include <kineto/output_base.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "host_alias.h"
#include "lower.h"
#include "xpu/program.h"

namespace openxpu {
namespace {

using libkineto::ActivityType;

const std::set<ActivityType> supported = {ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY,
                                          ActivityType::GPU_MEMSET, ActivityType::XPU_RUNTIME};

// An operator in progress on a thread: Kineto's id, and the time since which PyTorch's CPU kernels work
// in it on device memory.
struct Operator {
    uint64_t number;
    xpu_stream *stream;
    uint64_t since; // ns, 0: they don't
};
// Operators of the calling thread, innermost last.
thread_local std::vector<Operator> operators;

std::mutex host_lock; // guards the records of CPU kernels' work, which have no names yet
std::vector<xpu_profile_record> host_records;

uint64_t now() {
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

// From here to its end, the calling thread's current operator counts as device work.
void note_host_work(c10::DeviceIndex device) {
    if (operators.empty() || operators.back().since) return;
    operators.back().stream = current_stream(device);
    operators.back().since = now();
}

// An operator inside another recorded one is covered by the outer record.
void record_end_of(const Operator &ending) {
    if (!ending.since || !host_work_observer.load(std::memory_order_relaxed)) return;
    for (const auto &outer : operators)
        if (outer.since) return;
    const std::lock_guard guard(host_lock);
    host_records.push_back({nullptr, xpu_stream_device(ending.stream), xpu_stream_id(ending.stream), 0,
                            ending.since, ending.since, now(), 0, ending.number});
}

ActivityType type_of(const xpu_profile_record &record) {
    if (record.bytes == 0) return ActivityType::CONCURRENT_KERNEL;
    return std::string_view(record.name) == "fill" ? ActivityType::GPU_MEMSET : ActivityType::GPU_MEMCPY;
}

struct Session final : libkineto::IActivityProfilerSession {
    std::unique_ptr<libkineto::CpuTraceBuffer> buffer = std::make_unique<libkineto::CpuTraceBuffer>();
    std::vector<xpu_profile_record> records;
    std::vector<std::string> failures;

    void attempt(xpu_status status) {
        if (status != XPU_SUCCESS) failures.emplace_back(xpu_last_error());
    }

    void start() override {
        // Discard records of an earlier session.
        xpu_profile_drain([](const xpu_profile_record *, void *) {}, nullptr);
        {
            const std::lock_guard guard(host_lock);
            host_records.clear();
        }
        attempt(xpu_profile_start());
        host_work_observer = note_host_work;
        status_ = libkineto::TraceStatus::RECORDING;
    }
    void stop() override {
        host_work_observer = nullptr;
        attempt(xpu_profile_stop());
        attempt(xpu_profile_drain(
            [](const xpu_profile_record *record, void *session) {
                static_cast<Session *>(session)->records.push_back(*record);
            },
            this));
        const std::lock_guard guard(host_lock);
        uint64_t last = records.empty() ? 0 : records.back().correlation;
        for (auto &record : host_records) {
            record.correlation = ++last;
            records.push_back(record);
        }
        host_records.clear();
        status_ = libkineto::TraceStatus::PROCESSING;
    }
    std::vector<std::string> errors() override { return failures; }

    void processTrace(libkineto::ActivityLogger &logger) override {
        processTrace(logger, nullptr, 0, INT64_MAX);
    }
    void processTrace(libkineto::ActivityLogger &logger, libkineto::getLinkedActivityCallback operator_of,
                      int64_t start, int64_t end) override {
        buffer->span = libkineto::TraceSpan(start, end, "openxpu");
        for (const auto &record : records) {
            if (static_cast<int64_t>(record.ended) < start || static_cast<int64_t>(record.started) > end)
                continue;
            const auto *linked =
                operator_of && record.context ? operator_of(static_cast<int32_t>(record.context)) : nullptr;
            // for CPU kernels, the operator's name
            const std::string name = record.name ? record.name
                                     : linked    ? linked->name()
                                                 : "PyTorch's CPU kernels";
            buffer->emplace_activity(buffer->span, type_of(record), name);
            auto &activity = *buffer->activities.back();
            activity.startTime = static_cast<int64_t>(record.started);
            activity.endTime = static_cast<int64_t>(record.ended);
            activity.id = static_cast<int32_t>(record.correlation);
            activity.device = record.device;
            activity.resource = static_cast<int32_t>(record.stream_id);
            activity.threadId = libkineto::threadId();
            activity.flow.id = static_cast<uint32_t>(record.context);
            activity.flow.type = libkineto::kLinkAsyncCpuGpu;
            activity.flow.start = 0;
            activity.linked = linked;
            activity.addMetadata("correlation", record.correlation);
            activity.addMetadata("stream", record.stream_id);
            activity.addMetadata("device", record.device);
            if (record.bytes) activity.addMetadata("bytes", record.bytes);
            activity.log(logger);
        }
        buffer->gpuOpCount = static_cast<int>(buffer->activities.size());
    }

    std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return nullptr; }
    std::vector<libkineto::ResourceInfo> getResourceInfos() override {
        std::vector<libkineto::ResourceInfo> infos;
        for (const auto &record : records) {
            const auto stream = record.stream_id;
            const bool known = std::any_of(infos.begin(), infos.end(), [&](const auto &info) {
                return info.id == stream && info.deviceId == record.device;
            });
            if (!known) infos.push_back({stream, stream, record.device, "stream " + std::to_string(stream)});
        }
        return infos;
    }
    std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer); }

    void pushCorrelationId(uint64_t id) override {
        operators.push_back({id, nullptr, 0});
        xpu_profile_set_context(id);
    }
    void popCorrelationId() override {
        if (!operators.empty()) {
            const Operator ending = operators.back();
            operators.pop_back();
            record_end_of(ending);
        }
        xpu_profile_set_context(operators.empty() ? 0 : operators.back().number);
    }
};

struct Profiler final : libkineto::IActivityProfiler {
    const std::string &name() const override {
        static const std::string text = "__openxpu_profiler__";
        return text;
    }
    const std::set<ActivityType> &availableActivities() const override { return supported; }
    std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType> &wanted,
                                                                   const libkineto::Config &) override {
        const bool any =
            std::any_of(wanted.begin(), wanted.end(), [](auto type) { return supported.count(type) > 0; });
        return any ? std::make_unique<Session>() : nullptr;
    }
    std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t,
                                                                   const std::set<ActivityType> &wanted,
                                                                   const libkineto::Config &config) override {
        return configure(wanted, config);
    }
};

} // namespace

void register_profiler() {
    libkineto::api().registerProfilerFactory([] { return std::make_unique<Profiler>(); });
}

} // namespace openxpu
