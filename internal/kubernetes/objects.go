package kubernetes

// The objects that we write, with the fields that we set. Kubernetes has many
// more; each of these is checked against the API's own schema in the tests.

type meta struct {
	Name            string            `json:"name,omitzero"`
	Namespace       string            `json:"namespace,omitzero"`
	ResourceVersion string            `json:"resourceVersion,omitzero"`
	Labels          map[string]string `json:"labels,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
	OwnerReferences []owner           `json:"ownerReferences,omitempty"`
}

type owner struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Controller bool   `json:"controller,omitzero"`
}

type networkPolicy struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   meta              `json:"metadata"`
	Spec       networkPolicySpec `json:"spec"`
}

type networkPolicySpec struct {
	PodSelector selector     `json:"podSelector"`
	PolicyTypes []string     `json:"policyTypes"`
	Egress      []egressRule `json:"egress"`
}

type selector struct {
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}

type egressRule struct {
	Ports []policyPort `json:"ports"`
	To    []policyPeer `json:"to"`
}

type policyPort struct {
	Protocol string `json:"protocol"`
	Port     int    `json:"port"`
}

type policyPeer struct {
	IPBlock           *ipBlock  `json:"ipBlock,omitzero"`
	NamespaceSelector *selector `json:"namespaceSelector,omitzero"`
	PodSelector       *selector `json:"podSelector,omitzero"`
}

type ipBlock struct {
	CIDR string `json:"cidr"`
}

type secret struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   meta              `json:"metadata"`
	Type       string            `json:"type"`
	Immutable  bool              `json:"immutable"`
	Data       map[string][]byte `json:"data"`
}

type job struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Metadata   meta    `json:"metadata"`
	Spec       jobSpec `json:"spec"`
}

type jobSpec struct {
	BackoffLimit            int         `json:"backoffLimit"` // zero is meant, and must be said
	Completions             int         `json:"completions"`
	Parallelism             int         `json:"parallelism"`
	PodReplacementPolicy    string      `json:"podReplacementPolicy"`
	ActiveDeadlineSeconds   int64       `json:"activeDeadlineSeconds"`
	TTLSecondsAfterFinished int64       `json:"ttlSecondsAfterFinished"`
	Template                podTemplate `json:"template"`
}

type podTemplate struct {
	Metadata meta    `json:"metadata"`
	Spec     podSpec `json:"spec"`
}

type podSpec struct {
	RestartPolicy                 string            `json:"restartPolicy"`
	AutomountServiceAccountToken  bool              `json:"automountServiceAccountToken"`
	EnableServiceLinks            bool              `json:"enableServiceLinks"`
	HostUsers                     *bool             `json:"hostUsers,omitzero"`
	TerminationGracePeriodSeconds int64             `json:"terminationGracePeriodSeconds"`
	RuntimeClassName              string            `json:"runtimeClassName,omitzero"`
	PriorityClassName             string            `json:"priorityClassName,omitzero"`
	NodeSelector                  map[string]string `json:"nodeSelector,omitempty"`
	Tolerations                   []toleration      `json:"tolerations,omitempty"`
	ImagePullSecrets              []nameRef         `json:"imagePullSecrets,omitempty"`
	HostAliases                   []hostAlias       `json:"hostAliases,omitempty"`
	DNSPolicy                     string            `json:"dnsPolicy"`
	DNSConfig                     *dnsConfig        `json:"dnsConfig,omitzero"`
	SecurityContext               podSecurity       `json:"securityContext"`
	Containers                    []container       `json:"containers"`
	Volumes                       []volume          `json:"volumes"`
}

type toleration struct {
	Key      string `json:"key"`
	Operator string `json:"operator"`
	Value    string `json:"value,omitzero"`
	Effect   string `json:"effect,omitzero"`
}

type nameRef struct {
	Name string `json:"name"`
}

type hostAlias struct {
	IP        string   `json:"ip"`
	Hostnames []string `json:"hostnames"`
}

type dnsConfig struct {
	Nameservers []string `json:"nameservers"`
}

type podSecurity struct {
	RunAsNonRoot        bool    `json:"runAsNonRoot"`
	RunAsUser           int64   `json:"runAsUser"`
	RunAsGroup          int64   `json:"runAsGroup"`
	FSGroup             int64   `json:"fsGroup"`
	FSGroupChangePolicy string  `json:"fsGroupChangePolicy"`
	SeccompProfile      seccomp `json:"seccompProfile"`
}

type seccomp struct {
	Type string `json:"type"`
}

type container struct {
	Name                     string            `json:"name"`
	Image                    string            `json:"image"`
	ImagePullPolicy          string            `json:"imagePullPolicy,omitzero"`
	Command                  []string          `json:"command,omitempty"`
	Args                     []string          `json:"args,omitempty"`
	WorkingDir               string            `json:"workingDir"`
	Env                      []variable        `json:"env"`
	Resources                resources         `json:"resources"`
	SecurityContext          containerSecurity `json:"securityContext"`
	TerminationMessagePolicy string            `json:"terminationMessagePolicy"`
	VolumeMounts             []mount           `json:"volumeMounts"`
}

type variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type resources struct {
	Limits   map[string]string `json:"limits"`
	Requests map[string]string `json:"requests,omitempty"`
}

type containerSecurity struct {
	AllowPrivilegeEscalation bool         `json:"allowPrivilegeEscalation"`
	Privileged               bool         `json:"privileged"`
	ReadOnlyRootFilesystem   bool         `json:"readOnlyRootFilesystem"`
	Capabilities             capabilities `json:"capabilities"`
}

type capabilities struct {
	Drop []string `json:"drop"`
}

type mount struct {
	Name      string `json:"name"`
	MountPath string `json:"mountPath"`
	ReadOnly  bool   `json:"readOnly,omitzero"`
}

type volume struct {
	Name      string     `json:"name"`
	EmptyDir  *emptyDir  `json:"emptyDir,omitzero"`
	Projected *projected `json:"projected,omitzero"`
}

type emptyDir struct {
	SizeLimit string `json:"sizeLimit"`
}

type projected struct {
	DefaultMode int          `json:"defaultMode"`
	Sources     []projection `json:"sources"`
}

type projection struct {
	Secret secretProjection `json:"secret"`
}

type secretProjection struct {
	Name  string      `json:"name"`
	Items []keyToPath `json:"items"`
}

type keyToPath struct {
	Key  string `json:"key"`
	Path string `json:"path"`
}
