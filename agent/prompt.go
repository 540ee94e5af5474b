package agent

// NoticeInstruction x
const NoticeInstruction = "This is a watch notification, not a user message. Tell the channel only if the change matters to what was asked; otherwise reply exactly NO_REPLY."
