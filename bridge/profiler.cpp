// torch.profiler's view of xpu: kernels, copies and fills with the device's own times. Kineto, which PyTorch
// carries, asks "child profilers" for such records; libxpu keeps them.
#include "profiler.h"

#include <kineto/libkineto.h>
#include <kineto/output_base.h>

#include <algorithm>
#include <vector>

#include "lower.h"
#include "xpu/program.h"

namespace openxpu {
namespace {

using libkineto::ActivityType;

const std::set<ActivityType> supported = {ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY,
                                          ActivityType::GPU_MEMSET, ActivityType::XPU_RUNTIME};

// The operators that the calling thread is in, innermost last; kineto's numbers.
thread_local std::vector<uint64_t> operators;

ActivityType type_of(const xpu_profile_record &record) {
    const std::string_view name = record.name;
    if (record.bytes == 0) return ActivityType::CONCURRENT_KERNEL;
    return name == "fill" ? ActivityType::GPU_MEMSET : ActivityType::GPU_MEMCPY;
}

struct Session final : libkineto::IActivityProfilerSession {
    std::unique_ptr<libkineto::CpuTraceBuffer> buffer = std::make_unique<libkineto::CpuTraceBuffer>();
    std::vector<xpu_profile_record> records;
    std::vector<std::string> failures;

    void attempt(xpu_status status) {
        if (status != XPU_SUCCESS) failures.emplace_back(xpu_last_error());
    }

    void start() override {
        // What an earlier session left behind is no part of this one.
        xpu_profile_drain([](const xpu_profile_record *, void *) {}, nullptr);
        attempt(xpu_profile_start());
        status_ = libkineto::TraceStatus::RECORDING;
    }
    void stop() override {
        attempt(xpu_profile_stop());
        attempt(xpu_profile_drain(
            [](const xpu_profile_record *record, void *session) {
                static_cast<Session *>(session)->records.push_back(*record);
            },
            this));
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
            buffer->emplace_activity(buffer->span, type_of(record), record.name);
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
            activity.linked =
                operator_of && record.context ? operator_of(static_cast<int32_t>(record.context)) : nullptr;
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
        operators.push_back(id);
        xpu_profile_set_context(id);
    }
    void popCorrelationId() override {
        if (!operators.empty()) operators.pop_back();
        xpu_profile_set_context(operators.empty() ? 0 : operators.back());
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
